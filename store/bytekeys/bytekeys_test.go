package bytekeys_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/bytekeys"
	"github.com/rdmalab/rdmalab/store/kv"
)

const never = clock.Never

// sameHash gives all keys one hash.
func sameHash([]byte) uint64 { return 42 }

// number is the key of a number, of 8 bytes.
func number(n uint64) []byte { return fmt.Appendf(nil, "%08x", n) }

// What every store must do, byte-string keys do, too: with hashes, and with one hash for two keys.
func TestConformance(t *testing.T) {
	for name, hash := range map[string]func([]byte) uint64{
		"hash": bytekeys.Hash,
		"pairs": func(key []byte) uint64 {
			return bytekeys.Hash(key[:7]) + uint64(key[7]&^1)
		},
	} {
		m := kv.NewMap(4096)
		client := func() kv.Store { return bytekeys.Numbered{Client: bytekeys.New(m, hash), Name: number} }
		now := clock.Time(0)
		// an entry has the key and a header of 4 bytes beside the value
		if err := kvtest.Check(kvtest.Env{
			A: client(), B: client(), Now: func() clock.Time { now++; return now }, Largest: 4096 - 8 - 4, Exact: true,
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Sixteen keys with one hash have each their own value, also after some were deleted. A seventeenth
// finds no place.
func TestSameHash(t *testing.T) {
	c := bytekeys.New(kv.NewMap(100), sameHash)
	for i := range uint64(16) {
		if err := c.Insert(number(i), number(i), never); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := c.Insert(number(16), nil, never); !errors.Is(err, kv.ErrFull) || !errors.Is(err, kv.ErrNoEffect) {
		t.Errorf("a seventeenth key with one hash: %v", err)
	}
	if _, err := c.Get(number(16), nil, never); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("GET of the seventeenth key: %v", err)
	}
	for i := range uint64(8) {
		if err := c.Delete(number(2*i), never); err != nil {
			t.Error(err)
		}
	}
	for i := range uint64(16) {
		v, err := c.Get(number(i), nil, never)
		if i%2 == 0 && !errors.Is(err, kv.ErrNotFound) || i%2 == 1 && string(v) != string(number(i)) {
			t.Errorf("key %d: %q, %v", i, v, err)
		}
		if err := c.Put(number(i), nil, never); i%2 == 0 != errors.Is(err, kv.ErrNotFound) {
			t.Errorf("PUT of key %d: %v", i, err)
		}
		if err := c.Upsert(number(i), []byte("again"), never); err != nil {
			t.Error(err)
		}
	}
}

// Keys and values of any bytes and lengths come back as they were, up to the limit, which the error
// names.
func TestLimits(t *testing.T) {
	c := bytekeys.New(kv.NewMap(1000), bytekeys.Hash)
	for _, key := range []string{"", "\x00", "a", strings.Repeat("key", 100)} {
		for _, value := range []string{"", "\x00", strings.Repeat("v", 600)} {
			if err := c.Upsert([]byte(key), []byte(value), never); err != nil {
				t.Fatal(err)
			}
			if v, err := c.Get([]byte(key), nil, never); string(v) != value || err != nil {
				t.Errorf("key of %d bytes: %d bytes instead of %d, %v", len(key), len(v), len(value), err)
			}
		}
	}
	for value, fits := range map[int]bool{995: true, 996: false, 5000: false} {
		err := c.Upsert([]byte("k"), make([]byte, value), never)
		if fits && err != nil || !fits && (!errors.Is(err, kv.ErrTooLarge) || !errors.Is(err, kv.ErrNoEffect) || !strings.Contains(err.Error(), "the store's limit is 1000")) {
			t.Errorf("a value of %d bytes: %v", value, err)
		}
	}
	if err := c.Insert(make([]byte, 2000), nil, never); !errors.Is(err, kv.ErrTooLarge) {
		t.Errorf("a key of 2000 bytes: %v", err)
	}
}

// A number that another program uses as a key is not taken for an entry, and not overwritten.
func TestForeign(t *testing.T) {
	for _, foreign := range []string{"", "something", "\xd1", "\xd1\x80", "\xd1\x01\x05k", "\xc1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		for _, at := range []uint64{0, 1} {
			m := kv.NewMap(100)
			if err := m.Insert(84|at, []byte(foreign), never); err != nil { // 84 is the number of the claim
				t.Fatal(err)
			}
			c := bytekeys.New(m, sameHash)
			if _, err := c.Get([]byte("key"), nil, never); !errors.Is(err, bytekeys.ErrForeign) {
				t.Errorf("GET where a number has %q: %v", foreign, err)
			}
			if err := c.Insert([]byte("key"), nil, never); err == nil {
				t.Errorf("INSERT where a number has %q: no error", foreign)
			}
			if v, err := m.Get(84|at, nil, never); string(v) != foreign || err != nil {
				t.Errorf("the number has %q now, %v; it had %q", v, err, foreign)
			}
		}
	}
}

// A number with a value of another program is not overwritten by any write, and not claimed.
func TestForeignIsNotOverwritten(t *testing.T) {
	for name, op := range map[string]func(c *bytekeys.Client) error{
		"upsert": func(c *bytekeys.Client) error { return c.Upsert([]byte("key"), []byte("mine"), never) },
		"insert": func(c *bytekeys.Client) error { return c.Insert([]byte("key"), []byte("mine"), never) },
		"insert, put": func(c *bytekeys.Client) error {
			err := c.Insert([]byte("key"), []byte("mine"), never)
			if again := c.Put([]byte("key"), []byte("mine"), never); !errors.Is(again, kv.ErrNotFound) {
				return again
			}
			return err
		},
		"insert, delete": func(c *bytekeys.Client) error {
			err := c.Insert([]byte("key"), []byte("mine"), never)
			if again := c.Delete([]byte("key"), never); !errors.Is(again, kv.ErrNotFound) {
				return again
			}
			return err
		},
	} {
		m := kv.NewMap(100)
		if err := m.Insert(85, []byte("foreign"), never); err != nil { // the number of the data
			t.Fatal(err)
		}
		if err := op(bytekeys.New(m, sameHash)); !errors.Is(err, bytekeys.ErrForeign) || !errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("%s: %v, want ErrForeign", name, err)
		}
		if v, err := m.Get(85, nil, never); string(v) != "foreign" || err != nil {
			t.Errorf("%s: the number has %q now, %v", name, v, err)
		}
		if _, err := m.Get(84, nil, never); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("%s: the place is claimed: %v", name, err)
		}
	}
}

// INSERT of a key whose place another program has used since the claim says so.
func TestInsertNamesForeignData(t *testing.T) {
	m := kv.NewMap(100)
	c := bytekeys.New(m, sameHash)
	if err := errors.Join(c.Insert([]byte("key"), nil, never), c.Delete([]byte("key"), never), m.Insert(85, []byte("foreign"), never)); err != nil {
		t.Fatal(err)
	}
	if err := c.Insert([]byte("key"), nil, never); !errors.Is(err, bytekeys.ErrForeign) || !errors.Is(err, kv.ErrNoEffect) {
		t.Errorf("INSERT: %v, want ErrForeign", err)
	}
}

// lossy is a store whose memory server has lost some numbers: they are lost until they are inserted.
type lossy struct {
	*kv.Map
	lost map[uint64]bool
}

func (l *lossy) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if l.lost[key] {
		return dst[:0], kv.ErrLost
	}
	return l.Map.Get(key, dst, deadline)
}

func (l *lossy) Insert(key uint64, value []byte, deadline clock.Time) error {
	if l.lost[key] {
		delete(l.lost, key)
		_ = l.Map.Delete(key, deadline)
	}
	return l.Map.Insert(key, value, deadline)
}

// A claim that was lost goes to the key whose data is still there, and to the next key otherwise.
func TestLostClaims(t *testing.T) {
	for _, data := range []bool{false, true} {
		s := &lossy{Map: kv.NewMap(100), lost: map[uint64]bool{}}
		c := bytekeys.New(s, sameHash)
		if err := c.Insert([]byte("old"), []byte("1"), never); err != nil {
			t.Fatal(err)
		}
		s.lost[84], s.lost[85] = true, data
		if err := c.Put([]byte("old"), nil, never); !errors.Is(err, kv.ErrLost) || !errors.Is(err, kv.ErrNoEffect) {
			t.Errorf("PUT without claim: %v", err)
		}
		if err := c.Insert([]byte("new"), []byte("2"), never); err != nil {
			t.Fatal(err)
		}
		v, err := c.Get([]byte("old"), nil, never)
		if !data && string(v) != "1" || data && !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("data lost: %v: the old key has %q, %v", data, v, err)
		}
		if v, err = c.Get([]byte("new"), nil, never); string(v) != "2" || err != nil {
			t.Errorf("the new key has %q, %v", v, err)
		}
	}
}

// A key that has lost nothing keeps its place when the claim before it is lost. A new key takes that.
func TestLostClaimBeforeTheKeys(t *testing.T) {
	s := &lossy{Map: kv.NewMap(100), lost: map[uint64]bool{}}
	c := bytekeys.New(s, sameHash)
	for _, k := range []string{"a", "b"} {
		if err := c.Insert([]byte(k), []byte("1"), never); err != nil {
			t.Fatal(err)
		}
	}
	s.lost[84], s.lost[85] = true, true // claim and data of a
	if err := c.Insert([]byte("b"), []byte("2"), never); !errors.Is(err, kv.ErrExists) {
		t.Errorf("INSERT of a key that exists and has lost nothing: %v", err)
	}
	if err := c.Insert([]byte("c"), []byte("3"), never); err != nil || s.lost[84] {
		t.Errorf("INSERT of a new key: lost claims %v, %v", s.lost, err)
	}
	for k, want := range map[string]string{"b": "1", "c": "3"} {
		if v, err := c.Get([]byte(k), nil, never); string(v) != want || err != nil {
			t.Errorf("%s: %q, %v", k, v, err)
		}
	}
}
