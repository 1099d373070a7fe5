// Package kvtest tests what every store must do when nothing fails: one suite for all
// implementations of kv.Store.
package kvtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Env is what the suite needs to test a store. One thread uses its two clients in turn.
type Env struct {
	A, B kv.Store
	// Now is the clients' clock.
	Now func() clock.Time
	// Largest is the length of the longest value that the store accepts, in bytes, at least 40. The
	// store must refuse longer values.
	Largest int
	// Exact is true if a GET must return exactly the value that was stored. Otherwise further bytes
	// may follow the value.
	Exact bool
}

const patience = 10e9 // nanoseconds

func (e *Env) soon() clock.Time { return e.Now() + patience }

// Check runs the suite and returns the first error.
func Check(e Env) error {
	for _, c := range []struct {
		name string
		f    func(*Env) error
	}{
		{"absent keys", (*Env).absent},
		{"life of a key", (*Env).life},
		{"two clients", (*Env).twoClients},
		{"sizes", (*Env).sizes},
		{"against a map", (*Env).model},
		{"deadlines", (*Env).deadlines},
	} {
		if err := c.f(&e); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// want checks the result of a GET.
func (e *Env) want(s kv.Store, key uint64, value []byte) error {
	got, err := s.Get(key, nil, e.soon())
	if err != nil {
		return fmt.Errorf("GET %d: %w", key, err)
	}
	if e.Exact && !bytes.Equal(got, value) || !e.Exact && !bytes.HasPrefix(got, value) {
		return fmt.Errorf("GET %d: %d bytes %.20x, want %d bytes %.20x", key, len(got), got, len(value), value)
	}
	return nil
}

func is(err, want error, what string) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%s: %w, want %w", what, err, want)
	}
	return nil
}

func (e *Env) absent() error {
	_, err := e.A.Get(1000, nil, e.soon())
	return errors.Join(
		is(err, kv.ErrNotFound, "GET"), is(e.A.Put(1000, []byte("x"), e.soon()), kv.ErrNotFound, "PUT"),
		is(e.A.Delete(1000, e.soon()), kv.ErrNotFound, "DELETE"),
	)
}

func (e *Env) life() error {
	const key = 1
	for n := range 3 {
		v := kv.MakeValue(key, uint64(n), 40)
		if err := e.A.Insert(key, v, e.soon()); err != nil {
			return err
		}
		if err := is(e.A.Insert(key, v, e.soon()), kv.ErrExists, "INSERT again"); err != nil {
			return err
		}
		if err := e.want(e.A, key, v); err != nil {
			return err
		}
		for i := range 20 {
			v = kv.MakeValue(key, uint64(100*n+i), 16+i)
			if err := e.A.Put(key, v, e.soon()); err != nil {
				return err
			}
			if err := e.want(e.A, key, v); err != nil {
				return err
			}
		}
		if err := e.A.Delete(key, e.soon()); err != nil {
			return err
		}
		_, err := e.A.Get(key, nil, e.soon())
		if err := errors.Join(is(err, kv.ErrNotFound, "GET of a deleted key"), is(e.A.Put(key, v, e.soon()), kv.ErrNotFound, "PUT of one")); err != nil {
			return err
		}
	}
	return nil
}

// twoClients checks that each client sees the other's writes, even if it has cached an earlier
// state of the key.
func (e *Env) twoClients() error {
	const key = 2
	if err := e.A.Insert(key, kv.MakeValue(key, 0, 40), e.soon()); err != nil {
		return err
	}
	for n := uint64(1); n < 40; n++ {
		w, r := e.A, e.B
		if n%3 == 0 {
			w, r = r, w
		}
		v := kv.MakeValue(key, n, 40)
		if err := w.Put(key, v, e.soon()); err != nil {
			return err
		}
		if err := e.want(r, key, v); err != nil {
			return err
		}
	}
	if err := e.A.Delete(key, e.soon()); err != nil {
		return err
	}
	_, err := e.B.Get(key, nil, e.soon())
	if err := is(err, kv.ErrNotFound, "GET of a key that the other client deleted"); err != nil {
		return err
	}
	v := kv.MakeValue(key, 99, 40)
	if err := e.B.Insert(key, v, e.soon()); err != nil {
		return err
	}
	return e.want(e.A, key, v)
}

func (e *Env) sizes() error {
	const key = 3
	if err := e.A.Insert(key, kv.MakeValue(key, 1, 16), e.soon()); err != nil {
		return err
	}
	for _, n := range []int{16, 17, 103, 104, 105, 127, 128, 1000, 1001, e.Largest - 1, e.Largest} {
		if n > e.Largest {
			continue
		}
		v := kv.MakeValue(key, uint64(n), n)
		if err := e.A.Put(key, v, e.soon()); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		if err := errors.Join(e.want(e.A, key, v), e.want(e.B, key, v)); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return is(e.A.Put(key, make([]byte, e.Largest+1), e.soon()), kv.ErrTooLarge, "a value beyond the largest")
}

// model compares random operations of both clients with those on a map.
func (e *Env) model() error {
	r := rand.New(rand.NewPCG(1, 1))
	want := map[uint64][]byte{}
	for n := range uint64(400) {
		s := e.A
		if r.IntN(2) == 0 {
			s = e.B
		}
		key := 100 + r.Uint64N(8)
		v := kv.MakeValue(key, n, 16+r.IntN(min(200, e.Largest-15)))
		_, there := want[key]
		var err error
		switch r.IntN(4) {
		case 0:
			err = s.Insert(key, v, e.soon())
			if there {
				if err := is(err, kv.ErrExists, "INSERT"); err != nil {
					return err
				}
				continue
			}
			want[key] = v
		case 1:
			err = s.Put(key, v, e.soon())
			if there {
				want[key] = v
			}
		case 2:
			err = s.Delete(key, e.soon())
			delete(want, key)
		default:
			if there {
				if err := e.want(s, key, want[key]); err != nil {
					return fmt.Errorf("operation %d: %w", n, err)
				}
				continue
			}
			_, err = s.Get(key, nil, e.soon())
		}
		if there && err != nil {
			return fmt.Errorf("operation %d on key %d: %w", n, key, err)
		}
		if _, now := want[key]; !there && !now {
			if err := is(err, kv.ErrNotFound, fmt.Sprintf("operation %d on key %d", n, key)); err != nil {
				return err
			}
		} else if err != nil {
			return fmt.Errorf("operation %d on key %d: %w", n, key, err)
		}
	}
	return nil
}

// deadlines checks that an operation whose deadline has passed ends soon. It may or may not be
// executed.
func (e *Env) deadlines() error {
	const key = 4
	if err := e.A.Insert(key, kv.MakeValue(key, 1, 16), e.soon()); err != nil {
		return err
	}
	began := e.Now()
	_ = e.A.Put(key, kv.MakeValue(key, 2, 16), began) // may succeed or fail
	_, _ = e.B.Get(key, nil, began)                   // as above
	if took := e.Now() - began; took > patience/2 {
		return fmt.Errorf("operations whose deadline had passed took %v ns", int64(took))
	}
	if err := e.A.Put(key, kv.MakeValue(key, 3, 16), e.soon()); err != nil {
		return fmt.Errorf("PUT after one that was late: %w", err)
	}
	return e.want(e.B, key, kv.MakeValue(key, 3, 16))
}
