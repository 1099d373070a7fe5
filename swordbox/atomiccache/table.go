package atomiccache

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

type Config struct {
	// Max is how many words the table has at most; 0 means 65536.
	Max int
	// Budget is how long a NIC retries a request before it gives up. An older request without an
	// answer can no longer reach the server. 0 means 5 seconds.
	Budget time.Duration
	// Patience is how long operations wait in the switch for the operations in flight on clients'
	// connections. After that the waiting operations are sent on their clients' connections.
	// Patience must be much shorter than a NIC's timeout. 0 means 1 ms.
	Patience time.Duration
	// HoldOff is how long a word stays in Pass after Patience has passed; 0 means 50 ms.
	HoldOff time.Duration
	// Fresh is how old the server's last response to an operation on a word may be when the switch
	// itself answers a CAS that fails on that word. It bounds how late clients notice that the
	// server has crashed. 0 means 100 µs.
	Fresh time.Duration
}

func (c Config) withDefaults() Config {
	c.Max = cmp.Or(c.Max, 65536)
	c.Budget = cmp.Or(c.Budget, 5*time.Second)
	c.Patience = cmp.Or(c.Patience, time.Millisecond)
	c.HoldOff = cmp.Or(c.HoldOff, 50*time.Millisecond)
	c.Fresh = cmp.Or(c.Fresh, 100*time.Microsecond)
	return c
}

// MaxWords is the most that Config.Max can be.
const MaxWords = 1 << 24

// Validate reports what is wrong with c.
func (c *Config) Validate() error {
	switch {
	case c.Max < 0 || c.Max > MaxWords:
		return fmt.Errorf("atomiccache: Max is %d; want 0 to %d", c.Max, MaxWords)
	case c.Budget < 0 || c.Patience < 0 || c.HoldOff < 0 || c.Fresh < 0:
		return errors.New("atomiccache: Budget, Patience, HoldOff and Fresh must not be negative")
	}
	return nil
}

// Counters counts what a Table did.
type Counters struct {
	Words   int    `json:"words" help:"words in the table"`
	Made    uint64 `json:"made" name:"words_made" help:"words that the switch has begun to track"`
	Evicted uint64 `json:"evicted" name:"words_evicted" help:"idle words that were replaced by others"`
	Refused uint64 `json:"refused" name:"words_refused" help:"words not tracked because no word of the full table was idle"`
	Waits   uint64 `json:"waits" name:"word_waits" help:"operations that had to wait"`
}

const (
	// chunkLen is how many words the table grows by. Words never move.
	chunkLen = 256
	// maxProbe bounds the search for a word to evict.
	maxProbe = 64
	// pageShift is the logarithm of the size of a page in bytes. Words in an address range are
	// found by their pages.
	pageShift = 12
)

// Table is a bounded set of words. Make one with New.
type Table struct {
	cfg      Config
	chunks   [][]Word
	n        uint32 // slots in use
	live     int    // words in the table
	byKey    index
	byPage   index       // first word of a page, by pageOf
	bounds   []bound     // index is the number of the server
	due      clock.Queue // slots of the words at which Changed must look, and when
	serial   uint64      // increased for each new word and each decision of kind Client
	hand     uint32      // where the next search for a word to evict begins
	counters Counters
	cover    []*Word // scratch of ClientAll and EndAll
}

// New makes an empty table. It panics if the configuration is not valid. Call Validate first for a
// configuration that a user has written.
func New(cfg Config) *Table {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	return &Table{cfg: cfg.withDefaults()}
}

func (t *Table) Counters() Counters {
	c := t.counters
	c.Words = t.live
	return c
}

// Lookup returns the word with key k; nil if the table does not have it.
func (t *Table) Lookup(k Key) *Word {
	if i := t.byKey.get(k); i != 0 {
		return t.at(i - 1)
	}
	return nil
}

// Get returns the word with key k. If the table does not have it, Get adds it in state Pass. It
// returns nil if the address is not a multiple of 8, or if the table is full and no word can be
// evicted. The operation then travels on the client's connection, and the caller does not report
// its end. A *Word stays valid while a Decision about it is open; after that, the next Get may use
// the Word for another address.
func (t *Table) Get(now clock.Time, k Key) *Word {
	if w := t.Lookup(k); w != nil {
		return w
	}
	if k.VA%8 != 0 {
		return nil
	}
	slot, ok := t.room(now)
	if !ok {
		t.counters.Refused++
		return nil
	}
	t.serial++
	w := t.at(slot)
	*w = Word{
		Key: k, client: clientOps{window: t.interval(now)},
		tableEntry: tableEntry{t: t, slot: slot, used: true, serial: t.serial, born: now},
	}
	t.widen(k)
	w.next = t.byPage.get(pageOf(k))
	t.byPage.put(pageOf(k), slot+1)
	t.byKey.put(k, slot+1)
	t.live++
	t.counters.Made++
	return w
}

// Changed returns a word on which operations wait, because their decision was Wait; nil if there is
// none. The caller must ask this word for new decisions about these operations. The caller calls
// Changed after each packet and at Deadline, until it returns nil.
func (t *Table) Changed(now clock.Time) *Word {
	for range t.due.Len() {
		i, at := t.due.Next()
		if at > now {
			break
		}
		w := t.at(i)
		w.look(now)
		if w.State == Busy {
			t.due.Set(i, w.until)
			continue
		}
		t.due.Remove(i)
		if w.awaited {
			w.awaited = false
			return w
		}
	}
	return nil
}

// Deadline returns when Changed must be called.
func (t *Table) Deadline() clock.Time {
	_, at := t.due.Next()
	return at
}

// Reset calls Word.Reset for all words of a server.
func (t *Table) Reset(now clock.Time, server uint16) {
	t.Each(func(w *Word) {
		if w.Server == server {
			w.Reset(now)
		}
	})
}

// Each calls f for each word.
func (t *Table) Each(f func(w *Word)) {
	for i := range t.n {
		f(t.at(i))
	}
}

func (t *Table) at(slot uint32) *Word { return &t.chunks[slot/chunkLen][slot%chunkLen] }

// room finds a slot for a new word. If the table is full, it evicts an idle word. ok is false if it
// finds none.
func (t *Table) room(now clock.Time) (slot uint32, ok bool) {
	if int(t.n) == t.cfg.Max {
		return t.evict(now)
	}
	if int(t.n) == len(t.chunks)*chunkLen {
		t.chunks = append(t.chunks, make([]Word, chunkLen))
	}
	t.n++
	return t.n - 1, true
}

// evict removes an idle word that was not used since evict last looked at it, and returns its slot.
func (t *Table) evict(now clock.Time) (slot uint32, ok bool) {
	for range min(maxProbe, 2*int(t.n)) {
		slot = t.hand
		t.hand = (t.hand + 1) % t.n
		w := t.at(slot)
		w.client.age(t.interval(now)) // the counts of a word that no operation uses age only here
		if w.used || !w.Idle() {
			w.used = false
			continue
		}
		t.remove(w)
		t.counters.Evicted++
		return slot, true
	}
	return 0, false
}

func (t *Table) remove(w *Word) {
	t.byKey.remove(w.Key)
	page := pageOf(w.Key)
	if first := t.byPage.get(page); first == w.slot+1 {
		if w.next == 0 {
			t.byPage.remove(page)
		} else {
			t.byPage.put(page, w.next)
		}
	} else {
		for p := t.at(first - 1); ; p = t.at(p.next - 1) {
			if p.next == w.slot+1 {
				p.next = w.next
				break
			}
		}
	}
	t.due.Remove(w.slot)
	t.live--
}

// pageOf returns the key under which byPage finds the words of the page of k. Its address is odd,
// so it differs from the keys of all words.
func pageOf(k Key) Key { return Key{k.Server, k.VA>>pageShift<<pageShift | 1} }
