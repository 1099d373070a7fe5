package reason

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// String returns "WRITE 17", or "" for no work request.
func (w WorkRequest) String() string {
	if w.Number == 0 {
		return ""
	}
	return fmt.Sprintf("%v %d", w.Op, w.Number)
}

// Packet returns which packet of the work request a PSN is: "packet 3 of 16 of WRITE 17".
func (w WorkRequest) Packet(p wire.PSN) string {
	d := wire.Diff(p, w.First)
	if w.Number == 0 || w.Packets == 0 || d < 0 || uint32(d) >= w.Packets {
		return "the packet"
	}
	what := "packet"
	if w.Op == verbs.OpRead {
		what = "response"
	}
	return fmt.Sprintf("%s %d of %d of %v", what, d+1, w.Packets, w)
}

// Because returns why: the values if the note has them, else the text of its code.
func (n *Note) Because() string {
	switch {
	case n.Kind == Denied:
		return n.Text
	case n.HasMem():
		return n.Mem.String()
	case n.Text != "":
		return n.Text
	}
	switch n.Code {
	case NotEnabled:
		return fmt.Sprintf("%v needs %s, and the queue pair allows its peer %s", n.Opcode, mem.Rights(verbs.Access(n.Value)), mem.Rights(verbs.Access(n.Limit)))
	case TooManyReads:
		return fmt.Sprintf("%d READs and atomics are in flight already, and max_dest_rd_atomic is %d", n.Value, n.Limit)
	case TooLong:
		return fmt.Sprintf("the message has %d bytes or more, and the receive has room for %d", n.Value, n.Limit)
	case WrongLength:
		return fmt.Sprintf("%v has %d bytes; the path MTU is %d, and its message has a length of %d", n.Opcode, n.Packets, n.Limit, n.Value)
	case Misaligned:
		return fmt.Sprintf("the address %#x of %v is not a multiple of 8", n.Value, n.Opcode)
	case BadSequence, ReservedOpcode:
		return fmt.Sprintf("%v (%#x) cannot come here: %v", n.Opcode, uint8(n.Opcode), n.Code)
	case WrongQKey:
		return fmt.Sprintf("its Q_Key is %#x, and that of the queue pair %#x", n.Value, n.Limit)
	default:
		return n.Code.String()
	}
}

// String returns the note as a sentence without a full stop.
func (n *Note) String() string {
	switch n.Kind {
	case SentAgain:
		return n.again()
	case Healed:
		return fmt.Sprintf("%s (PSN %d) is acknowledged after %s and %v: healed; %s sent again by then", n.WR.Packet(n.First), uint32(n.First),
			counted(n.Times, "retry", "retries"), round(n.At.Sub(n.Since)), counted(n.Packets, "packet was", "packets were"))
	case Failed:
		return n.failed()
	case Missed:
		if n.Syndrome == 0 {
			return fmt.Sprintf("%s did not arrive before %v with PSN %d: lost, and not asked for again", psns(n.First, n.Last), n.Opcode, uint32(n.Last.Next()))
		}
		if n.Syndrome.IsSelective() {
			return fmt.Sprintf("%s did not arrive before %v with PSN %d: a selective NAK said so; %s held until they came", psns(n.First, n.Last),
				n.Opcode, uint32(n.Last.Next()), counted(n.Times, "packet was", "packets were"))
		}
		return fmt.Sprintf("%s did not arrive before %v with PSN %d: a sequence NAK asked for PSN %d; %s dropped behind the gap", psns(n.First, n.Last),
			n.Opcode, uint32(n.Last.Next()), uint32(n.First), counted(n.Times, "packet was", "packets were"))
	case Refused:
		answer := "by " + n.Syndrome.String()
		if n.Syndrome == 0 {
			answer = "without an answer"
		}
		return fmt.Sprintf("refused %v with PSN %d %s, because %s", n.Opcode, uint32(n.First), answer, n.Because())
	case Waited:
		return fmt.Sprintf("%v with PSN %d found no receive, %s: RNR NAK, come back after %v", n.Opcode, uint32(n.First), counted(n.Times, "time", "times"), n.Wait)
	case Repeated:
		return fmt.Sprintf("%s arrived again, though executed before: answered again, not executed again", psns(n.First, n.Last))
	case Dropped:
		return fmt.Sprintf("dropped %v with PSN %d without an answer (%s), because %s", n.Opcode, uint32(n.First), counted(n.Times, "time", "times"), n.Because())
	case Ended:
		return fmt.Sprintf("went to ERROR, because %s", n.Because())
	case Denied:
		return "refused a verb: " + n.Text
	}
	return n.Kind.String()
}

func (n *Note) again() string {
	cause := ""
	switch n.Code {
	case Timeout:
		cause = fmt.Sprintf("no answer to %s (PSN %d) within %v", n.WR.Packet(n.First), uint32(n.First), round(n.Wait))
	case SequenceNak:
		cause = fmt.Sprintf("a sequence NAK says that %s (PSN %d) is missing", n.WR.Packet(n.First), uint32(n.First))
	case ImpliedNak:
		cause = fmt.Sprintf("a later response arrived, and that to %s (PSN %d) did not", n.WR.Packet(n.First), uint32(n.First))
	default:
		cause = fmt.Sprintf("an RNR NAK says that the peer has no receive for PSN %d; wait %v", uint32(n.First), n.Wait)
	}
	left := fmt.Sprintf("%d of %d retries left", n.Left, n.Tries)
	if n.Code == NotReady && n.Tries == 7 {
		left = "retries without limit"
	}
	return fmt.Sprintf("%s: %s sent again (%s)", cause, psns(n.First, n.Last), left)
}

func (n *Note) failed() string {
	w := n.WR.String()
	if w == "" {
		w = "a work request"
	}
	s := fmt.Sprintf("%s failed: %v, because %s", w, n.Status, n.Because())
	switch n.Code {
	case Timeout, SequenceNak, ImpliedNak, NotReady:
		s += fmt.Sprintf("; it waited for %s (PSN %d), sent up to PSN %d, after %s", n.WR.Packet(n.First), uint32(n.First), uint32(n.Last), counted(uint32(n.Tries), "retry", "retries"))
		if n.Code == Timeout {
			s += fmt.Sprintf(" of %v each", round(n.Wait))
		}
	case PeerInvalid, PeerAccess, PeerOperation, PeerUnknown, PeerBadResponse:
		s += fmt.Sprintf(" to PSN %d", uint32(n.First))
	default: // the reason says it all
	}
	return s
}

func psns(first, last wire.PSN) string {
	if wire.Diff(last, first) <= 0 {
		return fmt.Sprintf("PSN %d", uint32(first))
	}
	return fmt.Sprintf("PSNs %d to %d", uint32(first), uint32(last))
}

func counted(n uint32, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// round shortens a duration to three digits or so.
func round(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= 10*unit {
			return d.Round(unit / 10)
		}
	}
	return d
}
