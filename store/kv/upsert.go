package kv

import "errors"

// PutOrInsert is the UPSERT of a store that has none: it tries PUT and INSERT of a key in turn, until
// one does not fail because the key has no value or has one. retries is how often both did.
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
