package kv

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Upserter is a client that can set the value of a key, whether the key exists or not.
type Upserter interface {
	Store
	Upsert(key uint64, value []byte, deadline clock.Time) error
}

// PutOrInsert does the work of UPSERT for a store that has none. It tries PUT and then INSERT of a
// key, and repeats both if PUT does not find the key and INSERT finds it, because other clients
// have deleted and inserted it. retries is the number of repetitions.
func PutOrInsert(put, insert func() error) (retries int, err error) {
	for {
		if err := put(); !errors.Is(err, ErrNotFound) {
			return retries, err
		}
		if err := insert(); !errors.Is(err, ErrExists) {
			return retries, err
		}
		retries++
	}
}
