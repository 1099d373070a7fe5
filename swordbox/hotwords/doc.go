// Package hotwords counts which addresses of servers are requested most: the handler of rules of
// action count. It sees requests and changes none.
//
// Each rule has a table of fixed size that works as Space-Saving (Metwally, Agrawal, El Abbadi:
// Efficient computation of frequent and top-k elements in data streams, ICDT 2005): an address that
// is not in a full table replaces the one with the smallest count, and its count continues from that
// count. So a count is never too small, it is too large by at most the count that was taken over,
// and an address with more than 1/n of all requests is in a table of n.
package hotwords
