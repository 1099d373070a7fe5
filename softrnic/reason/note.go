package reason

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Kind is the kind of a note.
type Kind uint8

// Kinds of notes. The requester makes those up to Failed, the responder those from Missed to Dropped.
const (
	// SentAgain: everything from PSN First on, up to Last, is sent again because of Code. Times counts
	// the retries in a row.
	SentAgain Kind = iota
	// Healed: the packet with PSN First, which had to be sent again, is acknowledged. Since is the time
	// of its first retry, Times the number of retries, Packets that of the packets sent again.
	Healed
	// Failed: a work request completed with an error.
	Failed
	// Missed: a request with PSN Last+1 arrived, and those from First to Last had not. The responder
	// answered with a sequence NAK for First. Times counts the packets that it dropped because of it.
	Missed
	// Refused: a request was refused because of Code. The responder answered with Syndrome.
	Refused
	// Waited: a request found no receive, and was answered with an RNR NAK. Wait is the time that the
	// peer must wait.
	Waited
	// Repeated: requests with PSNs First to Last arrived again although they were executed. The
	// responder answered again, without executing them twice.
	Repeated
	// Dropped: a message or datagram of an unreliable service was dropped because of Code.
	Dropped
	// Ended: the queue pair left its connection because of Code.
	Ended
	// Denied: a verb was refused; Text is its error.
	Denied
)

var kindNames = [...]string{"sent again", "healed", "failed", "missed", "refused", "not ready", "repeated", "dropped", "ended", "denied"}

// String returns the name of the kind in the API.
func (k Kind) String() string { return kindNames[k] }

// Note is one case that a queue pair has noted. Fields that do not belong to its kind are zero.
type Note struct {
	At    clock.Time
	Kind  Kind
	Code  Code
	Since clock.Time // Failed: when the work request was posted; Healed: of the first retry
	// WR describes the work request of a requester's note; responders do not know it.
	WR WorkRequest
	// Opcode is the request packet of a responder's note, Syndrome the answer.
	Opcode      wire.Opcode
	Syndrome    wire.Syndrome
	First, Last wire.PSN
	Times       uint32
	Packets     uint32
	// Tries is the number of retries that were allowed, Left how many of them are left.
	Tries, Left uint8
	Status      verbs.Status
	// Wait is the ACK timeout, or the time of an RNR NAK.
	Wait time.Duration
	// Limit and Value are the two numbers that Code compares: resources and requests in flight, bytes
	// of a receive and of a message, Q_Keys, access rights.
	Limit, Value uint64
	// Mem is why memory may not be accessed; valid for codes of memory.
	Mem  mem.Refusal
	Text string
}

// WorkRequest describes a work request in a note.
type WorkRequest struct {
	// Number counts the posts of the queue pair since RESET, from 1; 0 means no work request. ID is the
	// program's wr_id.
	Number uint64
	ID     uint64
	Op     verbs.WROpcode
	Length uint32 // bytes
	Addr   uint64 // remote address
	RKey   uint32
	// First is the first PSN, Packets the number of packets: of a READ those of its response.
	First   wire.PSN
	Packets uint32
}

// HasMem reports whether Mem is valid.
func (n *Note) HasMem() bool {
	in := func(first Code) bool { return n.Code >= first && n.Code < first+5 }
	return in(LocalKey) || in(RemoteKey) || in(ReceiveKey) || (n.Code == LocalOp || n.Code == LateRead) && n.Mem.Key != 0
}

// Orderly reports whether the note is an end that a program, or its peer, has asked for.
func (n *Note) Orderly() bool { return n.Kind == Ended && (n.Code == ByProgram || n.Code == ByManager) }

// Kept is the number of notes that a queue pair keeps.
const Kept = 16

// Totals counts the cases of a queue pair since its creation.
type Totals struct {
	Timeouts     uint64 `json:"timeouts"`
	SequenceNaks uint64 `json:"sequenceNaks"`
	ImpliedNaks  uint64 `json:"impliedNaks"`
	RNRNaks      uint64 `json:"rnrNaks"`
	Healed       uint64 `json:"healed"`
	Failed       uint64 `json:"failed"`
	Missed       uint64 `json:"missed"`
	Refused      uint64 `json:"refused"`
	Repeated     uint64 `json:"repeated"`
}

// Notes has the newest notes of a queue pair, and the case that ended it. The zero value is empty.
// It allocates its memory with the first note.
type Notes struct {
	Totals Totals
	ring   []Note
	next   int // index of the oldest note, if the ring is full
	// end is the first case that failed a work request or refused a request since RESET.
	end   Note
	ended bool
}

// Add keeps a note, and returns it for changes until the next call of Add. The oldest one leaves if
// there are Kept of them.
func (n *Notes) Add(x Note) *Note {
	n.count(&x)
	if x.fatal() && !n.ended {
		n.end, n.ended = x, true
	}
	if len(n.ring) < Kept {
		if n.ring == nil {
			n.ring = make([]Note, 0, Kept)
		}
		n.ring = append(n.ring, x)
		return &n.ring[len(n.ring)-1]
	}
	p := &n.ring[n.next]
	*p = x
	n.next = (n.next + 1) % Kept
	return p
}

// fatal reports whether the note says why a queue pair has failed.
func (n *Note) fatal() bool { return n.Kind == Failed || n.Kind == Refused || n.Kind == Ended }

func (n *Notes) count(x *Note) {
	t := &n.Totals
	switch x.Kind {
	case SentAgain:
		switch x.Code {
		case Timeout:
			t.Timeouts++
		case SequenceNak:
			t.SequenceNaks++
		case ImpliedNak:
			t.ImpliedNaks++
		default:
			t.RNRNaks++
		}
	case Healed:
		t.Healed++
	case Failed:
		t.Failed++
	case Missed:
		t.Missed++
	case Refused:
		t.Refused++
	case Repeated:
		t.Repeated++
	default: // has no total
	}
}

// Newest returns the newest note, or nil. The caller may change it until the next call of Add.
func (n *Notes) Newest() *Note {
	switch {
	case len(n.ring) == 0:
		return nil
	case len(n.ring) < Kept:
		return &n.ring[len(n.ring)-1]
	}
	return &n.ring[(n.next+Kept-1)%Kept]
}

// Empty reports whether there is no note.
func (n *Notes) Empty() bool { return len(n.ring) == 0 }

// All returns a copy of the notes, oldest first.
func (n *Notes) All() []Note {
	out := make([]Note, 0, len(n.ring))
	return append(append(out, n.ring[n.next:]...), n.ring[:n.next]...)
}

// End returns the first case that failed a work request, refused a request or ended the queue pair
// since RESET. ok is false if there is none.
func (n *Notes) End() (x Note, ok bool) { return n.end, n.ended }

// Ended reports whether End has a case.
func (n *Notes) Ended() bool { return n.ended }

// Reopen forgets the end, when the queue pair begins again. The notes stay.
func (n *Notes) Reopen() { n.end, n.ended = Note{}, false }
