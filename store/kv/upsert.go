package kv

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Upserter is a client that can give a key a value whether it has one or not.
type Upserter interface {
	Store
	Upsert(key uint64, value []byte, deadline clock.Time) error
}

// PutOrInsert is UPSERT for a store that has none. It tries PUT and INSERT of a key in turn, as
// long as PUT does not find the key and INSERT does. retries is how many times that was so.
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
