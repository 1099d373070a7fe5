// Package client gives a program the stores of a running rack: by the NIC of the host on which the
// program runs, with byte strings as keys, for all goroutines of the program.
//
//	s, err := client.Open(ctx, "clover", client.Options{})
//	err = s.Upsert(ctx, []byte("greeting"), []byte("hello"))
//	value, err := s.Get(ctx, []byte("greeting"))
//
// A program imports the stores that it uses, such as store/all, and is started by `rdmalab exec`.
// Open takes any store that is registered, because it makes the store's own Node (package store) in
// the program: a store needs nothing for this package. New makes a Pool of any kv.Store, for tests
// without a rack: kv.Map is one.
//
// # Keys
//
// The keys of a Pool are byte strings of any length, as package bytekeys stores them. Pool.Numbers
// has the store's own keys, which are numbers: those of `rdmalab clover get 7`, and of scans where a
// store keeps its keys in order. A store should have keys of one kind.
//
// # Limits
//
// A store limits the length of a value, for byte-string keys that of key, value and a header of a
// few bytes together. Pool.MaxValue says how much. A longer value is kv.ErrTooLarge with both
// lengths.
//
// # Contexts and errors
//
// Errors are those of package kv. An operation ends at the deadline of its context, or after
// Options.Patience if that is earlier. It returns at once when its context is cancelled; a write is then kv.ErrTimeout,
// because it may still be executed, unless the error is kv.ErrNoEffect as well. A client that cannot
// go on, because the NIC or the store has been restarted, is replaced by the next operation.
package client
