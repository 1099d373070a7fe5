// Package trace handles traces of operations on stores: their format, converters from public
// formats, and the compressed form for requests to daemons.
//
// A trace is text: the line of Header, and one line for each operation with five numbers or words.
//
//	time_us,client,op,key,size
//	0,0,put,17,100
//	250,3,get,17,0
//
// time_us is the time since the beginning of the trace, in microseconds. client is the number of
// the client; a client executes its operations one after the other. op is get, put, insert, delete,
// scan or rmw (a read and then a write of the key). key is a number of 64 bits. size is the length
// in bytes of the value that put, insert and rmw write, or the largest number of keys that scan
// reads; for the other operations it is 0. Empty lines and lines that begin with # are ignored.
// Operations with equal times are in the order of their lines.
package trace
