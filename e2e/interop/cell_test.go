package interop_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// cell is one row of the matrix in one direction: an operation at a path MTU, in several sizes,
// over one queue pair.
type cell struct {
	Op     string `json:"op"`
	Type   string `json:"type"` // rc, uc, ud
	Link   string `json:"link"` // one of links
	MTU    int    `json:"mtu"`
	Ours   bool   `json:"ours"` // our NIC initiates
	GID    int    `json:"gid"`  // index of the guest's address
	OurGID int    `json:"ourGid"`
	Sizes  []int  `json:"sizes"`
	Depth  int    `json:"depth"`  // messages outstanding
	Pieces int    `json:"pieces"` // elements of the initiator's gather or scatter list
	// RdAtomic is how many READs and atomics may be outstanding; 0: 4.
	RdAtomic int `json:"rdAtomic,omitempty"`
	// Twice runs the whole cell once before the measured run, because a switch moves requests only
	// after requests on the client's connection have succeeded.
	Twice bool `json:"twice,omitempty"`
	// What is the name of a variation's row.
	What string `json:"what,omitempty"`
	// Trouble is a mistake that the cell makes. Want is the status (of ibv_wc_status) with which
	// the initiator must complete.
	Trouble trouble `json:"trouble,omitempty"`
	Want    int     `json:"want,omitempty"`
}

// trouble is a mistake of an application.
type trouble string

// Mistakes.
const (
	wrongKey    trouble = "wrong rkey"
	outOfRange  trouble = "out of range"
	tooLong     trouble = "SEND longer than the receive"
	lateReceive trouble = "late receive"
	noReceive   trouble = "no receive"
	noQueuePair trouble = "no such queue pair"
)

// Statuses of ibv_wc_status that mistakes lead to.
const (
	flushed      = 5
	remInvReq    = 9
	remAccess    = 10
	remOp        = 11
	retryExc     = 12
	rnrRetryExc  = 13
	shortReceive = 64 // bytes of a receive that is too short
	late         = 150 * time.Millisecond
)

// result is the outcome of a cell.
type result struct {
	Cell    cell          `json:"cell"`
	Elapsed time.Duration `json:"elapsedNs"`
	Wrong   string        `json:"wrong"` // empty: no mistake was found
}

// Fixed values of every cell.
const (
	cellLimit = 20 * time.Second // time limit for one completion
	settle    = 20 * time.Second
	firstImm  = 0xa0b0c000
	firstWord = 0x0123456789abcdef
	addend    = 0x100000001
)

func (c *cell) String() string {
	from := "rxe>ours"
	if c.Ours {
		from = "ours>rxe"
	}
	return fmt.Sprintf("%s %s %-9s mtu %4d gid %d %s", from, c.Type, c.Op, c.MTU, c.GID, c.Trouble)
}

func (c *cell) atomic() bool { return c.Op == "cas" || c.Op == "faa" }
func (c *cell) takes() bool  { return strings.HasPrefix(c.Op, "send") || c.Op == "write_imm" }

// run runs a cell; a initiates. The error describes the first difference from the expected result.
func (c *cell) run(a, b end, seed int) (err error) {
	defer func() { err = errors.Join(err, a.close(), b.close()) }()
	slot := 64
	for _, n := range c.Sizes {
		slot = max(slot, (n+64+63)&^63)
	}
	open := opening{Slot: slot, Slots: len(c.Sizes), Type: c.Type, GID: c.GID}
	at, err := a.open(open)
	if err != nil {
		return err
	}
	bt, err := b.open(open)
	if err != nil {
		return err
	}
	p := params{
		MTU: c.MTU, SendPSN: rand.Uint32() & 0xffffff, RecvPSN: rand.Uint32() & 0xffffff, RdAtomic: cmp.Or(c.RdAtomic, 4),
		Timeout: 15, Retry: 7, RNRRetry: 7, MinRNR: 12, // 134 ms: an emulated processor may stop for that long
	}
	if seed%3 == 0 {
		p.SendPSN = 0xfffffe // so that PSNs wrap soon
	}
	q := p
	q.SendPSN, q.RecvPSN = p.RecvPSN, p.SendPSN
	c.spoil(&bt, &p, &q)
	if err := errors.Join(a.connect(bt, p), b.connect(at, q)); err != nil {
		return err
	}
	if err := c.prepare(a, b, slot, seed); err != nil {
		return err
	}
	w := work{
		Op: c.Op, Sizes: c.Sizes, Depth: c.Depth, Pieces: max(c.Pieces, 1), Addr: bt.Addr, Stride: slot, RKey: bt.RKey,
		Imm: firstImm, First: firstWord, Add: addend, Limit: cellLimit.Seconds(),
	}
	if c.Twice {
		if sent, err := a.run(w); err != nil || len(sent) != len(c.Sizes) {
			return errors.Join(err, fmt.Errorf("initiator: %d of %d completions the first time", len(sent), len(c.Sizes)))
		}
	}
	sent, got, err := c.exchange(a, b, w)
	if err != nil {
		return err
	}
	if c.Want != 0 {
		return errors.Join(c.judgeFailure(sent), c.untouched(b))
	}
	return errors.Join(c.judge(sent, got), c.content(a, b, seed))
}

// prepare makes the memory, receives and data that the operation needs.
func (c *cell) prepare(a, b end, slot, seed int) error {
	first := uint64(firstWord)
	switch {
	case c.atomic():
		_, err := b.word(&first, 1)
		return err
	case c.Op == "read":
		return b.fill(c.Sizes, seed)
	case c.Trouble == tooLong:
		return errors.Join(a.fill(c.Sizes, seed), b.recv(0, len(c.Sizes), shortReceive))
	case c.takes() && c.Trouble == "":
		return errors.Join(a.fill(c.Sizes, seed), b.recv(0, len(c.Sizes), slot))
	}
	return a.fill(c.Sizes, seed)
}

// exchange posts and polls on both sides concurrently.
func (c *cell) exchange(a, b end, w work) (sent, got []completion, err error) {
	done := make(chan error, 1)
	go func() {
		var err error
		if c.Trouble == lateReceive {
			time.Sleep(late)
			err = b.recv(0, len(c.Sizes), w.Stride)
		}
		if c.takes() && c.Want == 0 {
			var waitErr error
			got, waitErr = b.wait(len(c.Sizes), cellLimit)
			err = errors.Join(err, waitErr)
		}
		done <- err
	}()
	sent, err = a.run(w)
	return sent, got, errors.Join(err, <-done)
}

// judge compares the completions of both sides with the expected ones.
func (c *cell) judge(sent, got []completion) error {
	var err error
	if len(sent) != len(c.Sizes) {
		err = fmt.Errorf("initiator: %d of %d completions", len(sent), len(c.Sizes))
	}
	for m, w := range sent {
		if w.Status != 0 || int(w.ID) != m || c.Op == "read" && int(w.Len) != c.Sizes[m] {
			return errors.Join(err, fmt.Errorf("initiator: completion %d is %+v", m, w))
		}
	}
	if !c.takes() {
		return err
	}
	if len(got) != len(c.Sizes) {
		err = errors.Join(err, fmt.Errorf("target: %d of %d completions", len(got), len(c.Sizes)))
	}
	for m, w := range got {
		imm := uint32(0)
		if strings.HasSuffix(c.Op, "_imm") {
			imm = firstImm + uint32(m)
		}
		size := c.Sizes[m]
		if c.Type == "ud" {
			size += verbs.GRHLen
		}
		if w.Status != 0 || int(w.ID) != m || int(w.Len) != size || w.Imm != imm {
			return errors.Join(err, fmt.Errorf("target: completion %d is %+v; size %d, immediate %#x", m, w, size, imm))
		}
	}
	return err
}

// content compares the memory of both sides with the expected bytes.
func (c *cell) content(a, b end, seed int) error {
	if c.atomic() {
		return c.words(a, b)
	}
	var all error
	for name, e := range map[string]end{"initiator": a, "target": b} {
		bad, err := e.check(c.Sizes, seed)
		// An unreliable WRITE has no completion at the target, so its memory is polled.
		for end := time.Now().Add(settle); len(bad) > 0 && c.Type == "uc" && time.Now().Before(end); time.Sleep(late) {
			bad, err = e.check(c.Sizes, seed)
		}
		if len(bad) > 0 {
			err = errors.Join(err, fmt.Errorf("%s: memory is wrong in slots %v", name, bad))
		}
		all = errors.Join(all, err)
	}
	return all
}

// words checks every value that atomics returned, and the final values in memory.
func (c *cell) words(a, b end) error {
	step := uint64(1)
	if c.Op == "faa" {
		step = addend
	}
	got, err := a.word(nil, len(c.Sizes))
	if err != nil {
		return err
	}
	for m, v := range got {
		if want := firstWord + uint64(m)*step; v != want {
			return fmt.Errorf("atomic %d returned %#x, not %#x (all: %#x)", m, v, want, got)
		}
	}
	left, err := b.word(nil, 1)
	if want := firstWord + uint64(len(c.Sizes))*step; err == nil && left[0] != want {
		return fmt.Errorf("atomics left %#x, not %#x", left[0], want)
	}
	return err
}

// spoil makes the mistake of the cell, in the address and key that the initiator uses and in the
// attributes of both connections.
func (c *cell) spoil(target *address, a, b *params) {
	switch c.Trouble {
	case wrongKey:
		target.RKey ^= 0x5a
	case outOfRange:
		target.Addr += 1 << 30
	case noQueuePair:
		target.QPN ^= 0x100000
		a.Retry, a.Timeout = 2, 14
	case noReceive:
		a.RNRRetry = 2
	case lateReceive:
		b.MinRNR = 18 // 10 ms
	}
}

// judgeFailure expects the first message to fail with the wanted status, and those behind it to be
// flushed.
func (c *cell) judgeFailure(sent []completion) error {
	if len(sent) != len(c.Sizes) {
		return fmt.Errorf("initiator: %d of %d completions", len(sent), len(c.Sizes))
	}
	for m, w := range sent {
		want := flushed
		if m == 0 {
			want = c.Want
		}
		if int(w.ID) != m || w.Status != want {
			return fmt.Errorf("initiator: completion %d is %+v, not status %d", m, w, want)
		}
	}
	return nil
}

// untouched expects that no byte of a refused message is in the target's memory.
func (c *cell) untouched(b end) error {
	if c.Trouble == tooLong || c.atomic() {
		return nil // its first packet may fit, and atomics have their word at this place
	}
	bad, err := b.check(make([]int, len(c.Sizes)), 0)
	if len(bad) > 0 && c.Op != "read" {
		err = errors.Join(err, fmt.Errorf("target: memory was written in slots %v", bad))
	}
	return err
}
