# cmake -DFILE=x.json "-DKEY=rows;0;bytes" -P cmake/json.cmake: prints that value; fails if the file is no JSON or
# has no such key.
file(READ ${FILE} text)
string(JSON value GET "${text}" ${KEY})
execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${value}")
