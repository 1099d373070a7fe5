// Package client gives a program access to the stores of a running rack. It uses the NIC of the
// host on which the program runs. Keys are byte strings. All goroutines of the program may use one
// Pool.
//
//	s, err := client.Open(ctx, "clover", client.Options{})
//	err = s.Upsert(ctx, []byte("greeting"), []byte("hello"))
//	value, err := s.Get(ctx, []byte("greeting"))
//
// A program imports the stores that it uses, for instance store/all, and is started by `rdmalab
// exec`. Open opens any registered store: it makes the store's own Node (package store) in the
// program, so a store needs nothing special for this package. Only kvcs cannot be opened: its clients
// use the 1RMA NIC of a host's daemon. New makes a Pool of any kv.Store, for instance of kv.Map in
// tests without a rack.
//
// # Keys
//
// The keys of a Pool are byte strings of any length, which package bytekeys stores. Pool.Numbers
// has operations on the store's own keys, which are numbers, as in `rdmalab clover get 7`. Scans
// work only on numbers, in stores that keep their keys in order. A store should have keys of one
// kind only.
//
// # Limits
//
// A store limits the length of a value. For byte-string keys, the limit is for key, value and a
// header of a few bytes together. Pool.MaxValue returns the limit. A longer value fails with
// kv.ErrTooLarge, whose text has both lengths.
//
// # Contexts and errors
//
// Errors are those of package kv. An operation ends at the deadline of its context, or after
// Options.Patience if that is earlier. If its context is cancelled, it returns at once. A
// cancelled write returns kv.ErrTimeout, because it may still be executed. If the error is
// kv.ErrNoEffect, too, it will not be executed. If a client cannot go on because the NIC or the
// store has been restarted, the next operation replaces it.
package client
