// Package nictable is a key-value store whose GETs the NIC of its server executes (RedN, NSDI
// 2022). The server's process executes PUT, INSERT and DELETE, which clients send it over
// store/rpc. For each client it makes a program of work requests (redn.LookupServer) that answers
// GETs for ever: they go on while the process hangs, and after it has crashed.
//
// # Memory
//
// An Estate has everything that outlives the process: the table in registered memory, and the
// programs. The next process takes the Estate over as it is.
//
//	head     64 bytes: the number of moves
//	slots    64 bytes each: fingerprint of the key, version, length and place of an item
//	items    all of one length: key, version, length, checksum, value
//
// # Why it is linearizable
//
// A key has two slots, and is in one of them. An item is written before a slot names it, and one
// copy of less than 64 bytes changes a slot. The NIC reads the slots of a key one after the other.
// A key that moves between its slots is in both for a moment. The number of moves is raised before
// the key is removed from its first slot: a client that has found nothing, and sees another number
// of moves than at the end of its last GET, asks again.
//
// An item may be used again while the NIC sends it. So the answer has the version of the slot,
// which no other item ever has, and the client compares it and the checksum with the item.
//
// # Limits
//
// One client has one GET in flight. Of two keys with the same fingerprint of 48 bits only one is
// stored: the second INSERT gets kv.ErrFull. Versions have 32 bits. A PUT whose connection fails
// returns kv.ErrTimeout. There is one copy of the data, in the memory of one host. A client that
// was not connected when the process crashed must wait for the next process.
package nictable
