// Package hotwords counts which addresses of servers clients request most. It is the handler of the
// rules of action count that do not have the key store; package statestore handles those that have
// it. It sees requests and changes none.
//
// Each rule has a table of fixed size, which works as Space-Saving (Metwally, Agrawal, El Abbadi:
// Efficient computation of frequent and top-k elements in data streams, ICDT 2005). If an address
// is not in a full table, it replaces the address with the smallest count, and continues from that
// count. So a count is never too small, and it is too large by at most the count from which it has
// continued. An address with more than 1/n of all requests is in a table of n entries.
package hotwords
