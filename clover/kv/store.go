package kv

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Errors of a Store, to be tested with errors.Is.
var (
	// ErrNotFound says that the key has no value.
	ErrNotFound = errors.New("no such key")
	// ErrExists says that the key to be inserted has a value.
	ErrExists = errors.New("key exists")
	// ErrTooLarge says that no node holds so long a value.
	ErrTooLarge = errors.New("value is too large")
	// ErrFull says that the store has no room left.
	ErrFull = errors.New("store is full")
	// ErrTimeout says that the deadline passed. A write that ends so may have happened, or may yet.
	ErrTimeout = errors.New("timed out, outcome unknown")
	// ErrLost says that the value was in memory that is gone. It is not served from older copies.
	ErrLost = errors.New("value was lost with its memory server")
	// ErrNoEffect says of an operation that failed, and never will have had an effect: nothing was changed, and nothing is said
	// of the key. It stands beside the error that says why, and takes from ErrTimeout what that leaves open.
	ErrNoEffect = errors.New("nothing was changed")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store is closed")
)

// Store is one client of a store. It is used by one thread at a time. Deadlines are absolute times of the client's Runtime.
type Store interface {
	// Get appends the value of key to dst[:0] and returns that.
	Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error)
	// Put replaces the value of a key that exists.
	Put(key uint64, value []byte, deadline clock.Time) error
	// Insert gives a new key a value.
	Insert(key uint64, value []byte, deadline clock.Time) error
	// Delete takes a key away.
	Delete(key uint64, deadline clock.Time) error
	// Last says what the last operation cost.
	Last() Cost
	Close() error
}

// Cost is what one operation took on the network.
type Cost struct {
	// RTTs is how many times the client waited for the network on the data path, RPCs how many times for the metadata server.
	RTTs, RPCs int
	// Retries is how often a race was lost and an append was tried again.
	Retries int
}

// FirstTry reports an operation that succeeded without losing a race.
func (c Cost) FirstTry() bool { return c.Retries == 0 }

// Scanner is a Store that keeps its keys in order.
type Scanner interface {
	Store
	// Scan calls f for up to n keys from the smallest that is not below from, in order, until f returns false. Values
	// are valid during the call.
	Scan(from uint64, n int, f func(key uint64, value []byte) bool, deadline clock.Time) error
}
