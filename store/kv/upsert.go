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
// key. It repeats both if PUT has not found the key and INSERT has found it, because other clients
// delete and insert the key. retries is the number of repetitions.
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
