package kv

import (
	"errors"
	"slices"
	"testing"
)

// A Map answers as a Store must: an operation that is refused changes nothing.
func TestMap(t *testing.T) {
	m := NewMap(4)
	get := func(key uint64) string {
		v, err := m.Get(key, []byte("old contents"), 0)
		if err != nil {
			if len(v) != 0 {
				t.Errorf("a GET that fails returns %q", v)
			}
			return err.Error()
		}
		return string(v)
	}
	for i, c := range []struct {
		err, want error
		value     string // of key 7, afterwards
	}{
		{m.Put(7, []byte("a"), 0), ErrNotFound, ErrNotFound.Error()},
		{m.Delete(7, 0), ErrNotFound, ErrNotFound.Error()},
		{m.Insert(7, []byte("four"), 0), nil, "four"},
		{m.Insert(7, []byte("b"), 0), ErrExists, "four"},
		{m.Put(7, []byte("12345"), 0), ErrTooLarge, "four"},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("operation %d: %v, want %v", i, c.err, c.want)
		}
	}
	if got := get(7); got != "four" || m.MaxValue() != 4 {
		t.Errorf("the value is %q, the longest may have %d bytes", got, m.MaxValue())
	}
	if err := m.Put(7, []byte("new"), 0); err != nil || get(7) != "new" {
		t.Errorf("PUT: %v, %q", err, get(7))
	}
	if err := m.Delete(7, 0); err != nil || get(7) != ErrNotFound.Error() {
		t.Errorf("DELETE: %v, %q", err, get(7))
	}
	if a, b := m.Upsert(7, []byte("x"), 0), m.Upsert(7, []byte("y"), 0); a != nil || b != nil || get(7) != "y" {
		t.Errorf("UPSERT: %v, %v, %q", a, b, get(7))
	}
}

// A scan of a Map begins at a key, shows the keys in order, and ends after n keys or when it is told
// to.
func TestMapScan(t *testing.T) {
	m := NewMap(8)
	for _, key := range []uint64{50, 10, 40, 20, 30} {
		if err := m.Insert(key, []byte{byte(key)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from uint64
		n    int
		most int // after so many keys the caller has enough
		want []uint64
	}{
		{0, 100, 100, []uint64{10, 20, 30, 40, 50}},
		{20, 2, 100, []uint64{20, 30}},
		{21, 1, 100, []uint64{30}},
		{51, 5, 100, nil},
		{0, 0, 100, nil},
		{0, -1, 100, nil},
		{20, 4, 2, []uint64{20, 30}},
	} {
		var got []uint64
		err := m.Scan(c.from, c.n, func(key uint64, value []byte) bool {
			if got = append(got, key); value[0] != byte(key) {
				t.Errorf("key %d has the value %d", key, value[0])
			}
			return len(got) < c.most
		}, 0)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d keys from %d on: %v, want %v; %v", c.n, c.from, got, c.want, err)
		}
	}
}

// PutOrInsert tries PUT and INSERT in turn until one of them decides.
func TestPutOrInsert(t *testing.T) {
	for name, c := range map[string]struct {
		puts, inserts []error
		retries       int
		want          error
	}{
		"the key exists":       {puts: []error{nil}},
		"a new key":            {puts: []error{ErrNotFound}, inserts: []error{nil}},
		"another error of PUT": {puts: []error{ErrFull}, want: ErrFull},
		"of INSERT":            {puts: []error{ErrNotFound}, inserts: []error{ErrTimeout}, want: ErrTimeout},
		"others make and delete the key": {
			puts: []error{ErrNotFound, ErrNotFound, nil}, inserts: []error{ErrExists, ErrExists}, retries: 2,
		},
	} {
		puts, inserts := c.puts, c.inserts
		next := func(list *[]error) func() error {
			return func() error {
				if len(*list) == 0 {
					t.Fatalf("%s: one attempt too many", name)
				}
				err := (*list)[0]
				*list = (*list)[1:]
				return err
			}
		}
		retries, err := PutOrInsert(next(&puts), next(&inserts))
		if retries != c.retries || !errors.Is(err, c.want) || len(puts)+len(inserts) > 0 {
			t.Errorf("%s: %d retries, %v; %d attempts are left", name, retries, err, len(puts)+len(inserts))
		}
	}
}

// An error of a deadline names its reason, and ErrTimeout once.
func TestTimedOut(t *testing.T) {
	for _, c := range []struct {
		why  error
		text string
	}{
		{nil, ErrTimeout.Error()},
		{ErrFull, ErrTimeout.Error() + ": " + ErrFull.Error()},
		{ErrTimeout, ErrTimeout.Error() + "\n" + ErrTimeout.Error()},
	} {
		if err := TimedOut(c.why); !errors.Is(err, ErrTimeout) || c.why != nil && !errors.Is(err, c.why) || err.Error() != c.text {
			t.Errorf("%v: %q, want %q", c.why, err, c.text)
		}
	}
}
