# What every target of the project shares, and one function for each kind of target.

# Unchanged files are not compiled twice, in whichever build folder they were compiled first.
find_program(LACUNA_CCACHE ccache)
if(LACUNA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LACUNA_CCACHE})
endif()

# Debian's own interpreter before any other in PATH: python3-jsonschema is installed for that one.
find_program(LACUNA_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(LACUNA_PYTHON python3)

# Contraction is off outside kernel files: the same expression gives the same bits in every file.
add_library(lacuna_flags INTERFACE)
target_compile_features(lacuna_flags INTERFACE cxx_std_20)
target_compile_options(lacuna_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -ffp-contract=off
  # g++ 12 sees overlaps in std::string's operator+ that are not there (its bug 105329).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${LACUNA_WERROR}>:-Werror>)
if(LACUNA_SANITIZE)
  # A finding ends the program, so that the test that met it fails.
  target_compile_options(lacuna_flags INTERFACE
    -fsanitize=${LACUNA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(lacuna_flags INTERFACE -fsanitize=${LACUNA_SANITIZE})
endif()
if(LACUNA_FUZZERS)
  # The libraries must report their branches to the fuzzer, or it searches blindly.
  target_compile_options(lacuna_flags INTERFACE -fsanitize=fuzzer-no-link)
  add_custom_target(lacuna_fuzzers)
endif()

# lacuna_library(<folder> SOURCES … [TESTS …] [DEPENDS <folder>…] [PACKAGES <target>…])
# makes the library lacuna_<folder>, and from TESTS the program lacuna_<folder>_test.
# DEPENDS names folders to the left; PACKAGES are found packages that no public header shows.
function(lacuna_library folder)
  cmake_parse_arguments(arg "" "" "SOURCES;TESTS;DEPENDS;PACKAGES" ${ARGN})
  set(target lacuna_${folder})
  add_library(${target} STATIC ${arg_SOURCES})
  target_include_directories(${target}
    PUBLIC ${PROJECT_SOURCE_DIR}/include
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM arg_DEPENDS PREPEND lacuna_)
  target_link_libraries(${target} PUBLIC ${arg_DEPENDS} PRIVATE lacuna_flags ${arg_PACKAGES})
  if(LACUNA_TESTS AND arg_TESTS)
    lacuna_test(${folder} SOURCES ${arg_TESTS} DEPENDS ${folder} PACKAGES ${arg_PACKAGES})
  endif()
endfunction()

# lacuna_test(<name> [ISA] SOURCES … [DEPENDS <folder>…] [PACKAGES <target>…])
# makes the GoogleTest program lacuna_<name>_test and one ctest test <name>.<Suite>.<Test> for each
# TEST; with ISA, suites named Isa…, which run every instruction set,
# have the label `isa`. Tests run in the root of the tree, so LACUNA_TEST_DATA can be relative to it: an absolute
# path on the command line would make ccache miss in every other clone.
function(lacuna_test name)
  cmake_parse_arguments(arg "ISA" "" "SOURCES;DEPENDS;PACKAGES" ${ARGN})
  set(target lacuna_${name}_test)
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target}
    PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE LACUNA_TEST_DATA="tests/data")
  list(TRANSFORM arg_DEPENDS PREPEND lacuna_)
  target_link_libraries(${target}
    PRIVATE ${arg_DEPENDS} lacuna_flags ${arg_PACKAGES} rapidcheck GTest::gtest_main)
  include(GoogleTest)
  set(discovery TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  gtest_discover_tests(${target} ${discovery} TEST_FILTER "-Isa*" PROPERTIES TIMEOUT 300)
  if(arg_ISA)
    gtest_discover_tests(${target} ${discovery} TEST_FILTER "Isa*"
      PROPERTIES TIMEOUT 300 LABELS isa)
  endif()
endfunction()

# lacuna_python_test(<name> <script> [argument…])
# makes the ctest test <name>, which runs the script with Debian's Python in the root of the tree.
function(lacuna_python_test name script)
  if(LACUNA_TESTS)
    add_test(NAME ${name} COMMAND ${LACUNA_PYTHON} -B ${script} ${ARGN}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
  endif()
endfunction()

# lacuna_fuzzer(<name> SOURCES … [DEPENDS <folder>…] [PACKAGES <target>…])
# makes the libFuzzer program fuzzers/<name> in the build folder; `./dev fuzz` runs it from the
# seeds in tests/corpus/<name>/. Without LACUNA_FUZZERS it does nothing.
function(lacuna_fuzzer name)
  if(NOT LACUNA_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PACKAGES" ${ARGN})
  set(target lacuna_${name}_fuzz)
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM arg_DEPENDS PREPEND lacuna_)
  target_link_libraries(${target} PRIVATE ${arg_DEPENDS} lacuna_flags ${arg_PACKAGES})
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzzers)
  add_dependencies(lacuna_fuzzers ${target})
endfunction()

# lacuna_benchmark(<name> SOURCES … [DEPENDS <folder>…] [PACKAGES <target>…])
# makes the Google Benchmark program benchmarks/<name> in the build folder; `./dev bench` runs it.
# Without LACUNA_BENCHMARKS it does nothing.
function(lacuna_benchmark name)
  if(NOT LACUNA_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PACKAGES" ${ARGN})
  set(target lacuna_${name}_bench)
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target}
    PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  list(TRANSFORM arg_DEPENDS PREPEND lacuna_)
  target_link_libraries(${target}
    PRIVATE ${arg_DEPENDS} lacuna_flags ${arg_PACKAGES} benchmark::benchmark_main)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/benchmarks)
endfunction()
