package nic

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// CompletionLen is the length of a completion in host memory, in bytes. It consists of words in the byte
// order of the host. The NIC writes the last word after the others, so a program that sees the number of
// the completion in it can read the others:
//
//	 0 Tag
//	 8 IssueDelay | TotalDelay, 4 bytes each, in nanoseconds; 2³² - 1 stands for that and more
//	16 Length
//	24 number of the completion, modulo 2³², from 1 on | Slot 2 | Op 1 | Status 1, from the highest bits on
const CompletionLen = 32

// completions is a ring of completions in host memory: completion i is in place i modulo places. The NIC
// writes, the program reads. A slot has at most one completion that was not read, so none is overwritten.
type completions struct {
	region *Region
	offset int
	places uint64
	// written and read are numbers of completions since Complete. They do not wrap, so that places need
	// not be a power of two.
	written, read uint64
}

// Complete makes the NIC write the completions of the portal into host memory from now on: into region r,
// from offset on, CompletionLen bytes for each slot. Poll reads them there, and so may the program. It fails
// with ErrBusy if commands are in flight, or completions were not polled. The region cannot be deregistered
// before Close.
func (p *Portal) Complete(r *Region, offset uint64) error {
	size := len(p.slots) * CompletionLen
	switch {
	case p.closed || !p.nic.up:
		return errDown("complete")
	case len(p.free) < len(p.slots) || p.memory.region != nil:
		return opError("complete", verbs.ErrBusy, "the portal has commands, or memory for completions already")
	case r == nil || r.gone || p.nic.region(uint32(r.id)) != r || r.mem.Access()&verbs.LocalWrite == 0:
		return opError("complete", verbs.ErrInvalid, "completions need a region of this NIC with LocalWrite")
	case !r.holds(offset, size) || offset%wordLen != 0:
		return opError("complete", verbs.ErrInvalid, fmt.Sprintf("bytes [%d,+%d) of a region of %d: completions of %d slots need %d, from a multiple of %d on",
			offset, size, r.mem.Len(), len(p.slots), size, wordLen))
	}
	if err := r.mem.WriteAt(make([]byte, size), int(offset)); err != nil {
		return err
	}
	r.uses++
	p.memory = completions{region: r, offset: int(offset), places: uint64(len(p.slots))}
	return nil
}

// put writes the next completion. If the memory is gone, nothing can be told to the program.
func (q *completions) put(c *Completion) {
	at := q.offset + int(q.written%q.places)*CompletionLen
	q.written++
	for i, w := range [...]uint64{
		c.Tag, inNanoseconds(c.IssueDelay)<<32 | inNanoseconds(c.TotalDelay), uint64(c.Length),
		q.written<<32 | uint64(c.Slot)<<16 | uint64(c.Op)<<8 | uint64(c.Status),
	} {
		_ = q.region.mem.Store64(at+i*wordLen, w) // Complete has checked the bounds
	}
}

// inNanoseconds returns a delay as 4 bytes have it. A machine that hangs can make a delay of any length.
func inNanoseconds(d time.Duration) uint64 { return uint64(min(max(d, 0), math.MaxUint32)) }

// get reads the next completion; false means that the NIC has not written it.
func (q *completions) get() (c Completion, ok bool) {
	var b [CompletionLen]byte
	if q.region.mem.ReadAt(b[:], q.offset+int(q.read%q.places)*CompletionLen) != nil {
		return c, false
	}
	number, c := parseCompletion(&b)
	if ok = number == uint32(q.read+1); ok {
		q.read++
	}
	return c, ok
}

// parseCompletion reads a completion in host memory. The number says which one it is.
func parseCompletion(b *[CompletionLen]byte) (number uint32, c Completion) {
	ne := binary.NativeEndian
	delays, last := ne.Uint64(b[8:]), ne.Uint64(b[24:])
	return uint32(last >> 32), Completion{
		Tag: ne.Uint64(b[:]), Slot: uint16(last >> 16), Op: onerma.Op(last >> 8), Status: Status(last), Length: int(ne.Uint64(b[16:])),
		IssueDelay: time.Duration(delays >> 32), TotalDelay: time.Duration(uint32(delays)),
	}
}
