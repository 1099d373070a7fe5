// Package trace has the traces of operations on stores: their format, converters from public formats,
// and what a daemon is sent.
//
// A trace is text: the line of Header, and one line for each operation with five numbers or words.
//
//	time_us,client,op,key,size
//	0,0,put,17,100
//	250,3,get,17,0
//
// time_us is the time since the trace's beginning in microseconds. client is the number of the client,
// whose operations are executed one after the other. op is get, put, insert, delete, scan or
// rmw (a read and a write of the key). key is a number of 64 bits. size is the length of the value that
// put, insert and rmw write, in bytes, or how many keys scan reads at most; otherwise it is 0. Lines
// that are empty or begin with # are left out. The order of lines counts among those of equal times.
package trace
