package ring

import "encoding/binary"

// HeaderLen is the length of a queue's header in bytes.
const HeaderLen = 512

// Offsets in the header of a queue, in bytes.
const (
	offTail    = 0
	offHead    = 64
	offDone    = 72
	offWait    = 128
	offFired   = 136
	offArm     = 144
	offBacklog = 152
	offRefused = 192
	offValue   = 200
	offCode    = 208
	offText    = 216
)

// maxText is the largest length of the daemon's text about a refused entry in bytes.
const maxText = HeaderLen - offText - 8

// Queue is a ring with its header in the address space of one side.
type Queue struct {
	// Tail is the position behind the newest entry; the producer publishes it. Head is the position
	// of the oldest entry that the consumer has not taken; the consumer publishes it.
	Tail, Head *Shared
	// Done is published by the daemon together with the head of a ring of sends. Entries before it no
	// longer count against MaxSendWR: their work requests are complete or were refused.
	Done *Shared
	// Wait is set by an application before it sleeps until this queue changes. The daemon clears
	// Wait and wakes the application.
	Wait *Shared
	// Fired is set by the daemon when the event occurs that the application has requested by Arm. The
	// application clears it.
	Fired *Shared
	// Arm is set by the application to request an event: to 1 for any completion, to 2 for solicited
	// completions only. The daemon clears it.
	Arm *Shared
	// Backlog is set by the daemon when it has completions for which the ring has no room.
	Backlog *Shared
	// Refused is one more than the position of the entry that the daemon refused last; 0 means
	// none. Value is the word that the daemon has read for the last access to a region (see
	// Access).
	Refused, Value *Shared

	header, slots []byte
	slot          int
	mask          uint64
}

// QueueLen returns the size of a queue of n entries of slot bytes. n is rounded up to a power of
// two.
func QueueLen(n, slot int) int { return HeaderLen + ceil2(n)*slot }

// NewQueue returns the queue at the beginning of b, which has at least QueueLen bytes.
func NewQueue(b []byte, n, slot int) *Queue {
	n = ceil2(n)
	return &Queue{
		Tail: WordAt(b, offTail), Head: WordAt(b, offHead), Done: WordAt(b, offDone), Wait: WordAt(b, offWait), Fired: WordAt(b, offFired), Arm: WordAt(b, offArm),
		Backlog: WordAt(b, offBacklog), Refused: WordAt(b, offRefused), Value: WordAt(b, offValue),
		header: b[:HeaderLen:HeaderLen], slots: b[HeaderLen : HeaderLen+n*slot : HeaderLen+n*slot], slot: slot, mask: uint64(n - 1),
	}
}

func (q *Queue) Cap() uint64 { return q.mask + 1 }

// Slot returns the memory of the entry at a position.
func (q *Queue) Slot(pos uint64) []byte {
	i := int(pos&q.mask) * q.slot
	return q.slots[i : i+q.slot : i+q.slot]
}

// Refuse writes why the daemon refuses the entry at a position: a code and a text. The application
// reads them when the head has passed the entry.
func (q *Queue) Refuse(pos uint64, code uint32, text string) {
	text = text[:min(len(text), maxText)]
	binary.LittleEndian.PutUint32(q.header[offCode:], code)
	binary.LittleEndian.PutUint32(q.header[offCode+4:], uint32(len(text)))
	copy(q.header[offText:], text)
	q.Refused.Store(pos + 1)
}

// Refusal returns the code and text that Refuse wrote.
func (q *Queue) Refusal() (code uint32, text string) {
	n := min(binary.LittleEndian.Uint32(q.header[offCode+4:]), maxText)
	return binary.LittleEndian.Uint32(q.header[offCode:]), string(q.header[offText : offText+n])
}
