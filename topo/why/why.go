// Package why tells in sentences why a queue pair failed or healed. It takes the listings of the two
// hosts of a connection, and the last packets of the switch if it has kept them. It does no input or
// output: Tell is a function of its View.
package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/stall"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// Side is one end of a connection: a host and its queue pair.
type Side struct {
	Host string
	// QP is nil if the host has no such queue pair, also not among those that have gone.
	QP *hostd.QPObject
	// Trouble is why the host could not be asked; "" if it has answered.
	Trouble string
}

// Packet is a packet that the switch has dropped or changed.
type Packet struct {
	At      time.Time
	PSN     uint32
	Opcode  string
	DestQPN uint32
	// Link is the switch's interface; Comment is what the switch did, such as the name of a fault.
	Link, Comment string
}

// View is what is known about a queue pair and its peer.
type View struct {
	Own, Peer Side
	// Packets are those of the connection, in either direction, that the switch has kept with a
	// comment, oldest first.
	Packets []Packet
	// Decided are the decisions of switch programs about packets of the connection, oldest first.
	Decided []Decision
	// Faults are the fault rules on the links of both hosts that have hit packets.
	Faults []Fault
	// Stalls are those of the switch and of both hosts.
	Stalls []Stall
}

// Stall is a time in which a daemon did not get a processor.
type Stall struct {
	Node string
	stall.Stall
}

// Fault is a fault rule that has hit packets.
type Fault struct {
	Text string // as `rdmalab faults` prints it, with the name
	Hits uint64
	// Link is the host whose link the rule is on, or a trunk; Dir is the direction, of which "" means both.
	Link string
	Dir  fault.Dir
}

// way is where packets were lost: on the way to the peer, on the way from it, or it is not known where.
type way uint8

const (
	anyWay way = iota
	toPeer
	fromPeer
)

// on reports whether the rule can have hit packets on a way.
func (f *Fault) on(w way, v *View) bool {
	dir := f.Dir
	switch {
	case w == anyWay || dir == "" || dir == fault.Both:
		return true
	case f.Link == v.Own.Host:
		return (dir == fault.Up) == (w == toPeer)
	case f.Link == v.Peer.Host:
		return (dir == fault.Down) == (w == toPeer)
	}
	return true // a trunk
}

// leadsTo reports whether a packet for a queue pair can have been on the way. If both ends have the same
// number, that tells nothing.
func (w way) leadsTo(qpn uint32, v *View) bool {
	own, peer := v.Own.QP.QPN, v.Own.QP.PeerQPN
	switch {
	case w == anyWay || own == peer:
		return true
	case w == toPeer:
		return qpn == peer
	}
	return qpn == own
}

// Event is one line of a story.
type Event struct {
	At   time.Time `json:"at"`
	Host string    `json:"host"`
	Text string    `json:"text"`

	// Times is how many equal cases the line stands for; 0 for a line of one event.
	Times int `json:"times,omitempty"`

	rank int    // orders events of one time: what causes others comes first
	kind string // what equal events have in common
	psn  uint32
	ends bool // it ends a case: the queue pair has healed
}

// Story is the answer.
type Story struct {
	// Title names the queue pair, its owner, its peer and its state.
	Title string `json:"title"`
	// Events are in the order of time.
	Events []Event `json:"events"`
	// Because has the sentences of the answer.
	Because []string `json:"because"`
	// Look has commands and settings to look at.
	Look []string `json:"look,omitempty"`
}

// Tell tells the story of a queue pair.
func Tell(v View) Story {
	v.Packets = untold(&v)
	s := Story{Title: title(&v), Events: fold(timeline(&v)), Because: []string{}}
	add := func(look, format string, args ...any) {
		if format != "" {
			s.Because = append(s.Because, fmt.Sprintf(format, args...))
		}
		if look != "" {
			s.Look = append(s.Look, look)
		}
	}
	told := failure(&v, add)
	if heal := newest(v.Own.QP, "healed"); heal != nil {
		healed(&v, heal, add)
		older(&v, add)
		told = true
	}
	if again := newest(v.Own.QP, "sent again"); again != nil && !told {
		add("", "Not settled yet: %s.", again.Text)
		silent(&v, again, add)
		told = true
	}
	if !told {
		asResponder(&v, add)
	}
	if len(s.Because) == 0 {
		s.Because = []string{fmt.Sprintf("Nothing went wrong: queue pair %#x of %s has sent nothing again, has refused nothing, and no work request has failed.", v.Own.QP.QPN, v.Own.Host)}
	}
	if t := total(&v.Own.QP.Totals); t != "" {
		s.Because = append(s.Because, t)
	}
	return s
}

func title(v *View) string {
	q := v.Own.QP
	peer := ""
	if q.PeerQPN != 0 {
		peer = fmt.Sprintf(", connected to queue pair %#x of %s", q.PeerQPN, v.Peer.Host)
	}
	state := "now in " + q.State
	if q.Gone {
		state = "gone, last in " + q.State
	}
	return fmt.Sprintf("%s: queue pair %#x (%s, of %v)%s; %s", v.Own.Host, q.QPN, q.Type, q.Owner, peer, state)
}

func newest(q *hostd.QPObject, kind string) *hostd.NoteStatus {
	if q == nil {
		return nil
	}
	for i := len(q.Notes) - 1; i >= 0; i-- {
		if q.Notes[i].Kind == kind {
			return &q.Notes[i]
		}
	}
	return nil
}

// find returns the newest note of the peer of this kind that covers a PSN.
func find(q *hostd.QPObject, kind string, psn uint32) *hostd.NoteStatus {
	if q == nil {
		return nil
	}
	for i := len(q.Notes) - 1; i >= 0; i-- {
		if n := &q.Notes[i]; n.Kind == kind && between(psn, n.First, n.Last) {
			return n
		}
	}
	return nil
}

// between reports whether first <= psn <= last, among numbers of 24 bits that wrap.
func between(psn, first, last uint32) bool { return diff(psn, first) >= 0 && diff(last, psn) >= 0 }

// diff returns a-b as a signed number of 24 bits.
func diff(a, b uint32) int32 { return int32((a-b)<<8) >> 8 }

// adder adds a sentence to the answer, and what to look at.
type adder func(look, format string, args ...any)

// healed tells what was lost, who noticed it, and what was sent again.
func healed(v *View, heal *hostd.NoteStatus, add adder) {
	first := retryOf(v.Own.QP, heal)
	if first == nil {
		add("", "%s was sent again and is acknowledged; the notes of its loss are replaced by newer ones.", upper(orPacket(heal.Packet)))
		return
	}
	own, peer := v.Own.Host, v.Peer.Host
	code, lost := reason.Code(first.Code), toPeer
	packet := fmt.Sprintf("%s (PSN %d)", orPacket(heal.Packet), heal.First)
	switch code {
	case reason.SequenceNak:
		missed := find(v.Peer.QP, "missed", first.First)
		was := "was"
		if missed != nil && missed.Last != missed.First {
			packet, was = fmt.Sprintf("PSNs %d to %d", missed.First, missed.Last), "were"
		}
		add("", "%s %s lost on the way from %s to %s.", upper(packet), was, own, peer)
		nak := answered(v, first.First, first.Last)
		switch {
		case missed == nil && nak != nil:
			add(nak.look(), "The switch noticed it by a later packet: %s.", nak)
		case missed != nil:
			add("", "%s noticed it when %s with PSN %d arrived, and asked for PSN %d by a sequence NAK.", peer, missed.Opcode, (missed.Last+1)&0xffffff, missed.First)
		default:
			add("", "%s noticed it by a later packet, and asked for PSN %d by a sequence NAK.", peer, first.First)
		}
	case reason.ImpliedNak:
		lost = fromPeer
		add("", "%s was lost on the way from %s to %s: a later response arrived before it, which is an implied NAK.", upper(packet), peer, own)
	case reason.NotReady:
		add(lookOf(first, own, peer), "Nothing was lost: %s had no receive posted for %s, and answered with RNR NAKs.", peer, packet)
	default:
		add("", "No answer to %s came within the ACK timeout of %v.", packet, short(first.Wait))
		repeated := find(v.Peer.QP, "repeated", first.First)
		switch {
		case repeated != nil && diff(repeated.Last, first.Last) >= 0:
			lost = fromPeer
			add("", "%s had executed it already (PSNs up to %d arrived twice): its answer was lost on the way to %s.", peer, repeated.Last, own)
		case repeated != nil:
			next := (repeated.Last + 1) & 0xffffff
			add("", "%s had executed what came before PSN %d: %s was lost on the way from %s, and behind it came nothing by which %s could notice the loss.",
				peer, next, packetOf(heal.Work, next), own, peer)
		case v.Peer.QP != nil:
			add("", "%s had received nothing from PSN %d on: %s was lost on the way from %s.", peer, first.First, requestOf(packet), own)
		default:
			lost = anyWay
			peerTrouble(v, add)
		}
	}
	again := "PSN " + fmt.Sprint(first.First)
	if first.Last != first.First {
		again = fmt.Sprintf("PSNs %d to %d", first.First, first.Last)
	}
	if code == reason.NotReady {
		answeredFor(v, first.First, first.Last, add)
	}
	add("", "%s sent %s again (%s), and %v after the first retry, when %s had left again, PSN %d was acknowledged: healed.", own, again,
		plural(heal.Times, "retry", "retries"), short(heal.At.Sub(heal.Since)), plural(heal.Packets, "packet", "packets"), heal.First)
	dropped(v, first, lost, add)
}

// retryOf returns the first retry of the case that ends with heal.
func retryOf(q *hostd.QPObject, heal *hostd.NoteStatus) *hostd.NoteStatus {
	for i := range q.Notes {
		if n := &q.Notes[i]; n.Kind == "sent again" && n.First == heal.First && !n.At.Before(heal.Since) && !n.At.After(heal.At) {
			return n
		}
	}
	return nil
}

// dropped tells what the switch did with the packets that a note is about, which were lost on a way.
func dropped(v *View, n *hostd.NoteStatus, w way, add adder) {
	if decidedOn(v, n.First, n.Last, w, add) {
		return
	}
	for _, p := range v.Packets {
		if between(p.PSN, n.First, n.Last) && w.leadsTo(p.DestQPN, v) {
			add("`rdmalab faults`", "The switch says where: %s with PSN %d on %s, %s.", p.Opcode, p.PSN, p.Link, p.Comment)
			return
		}
	}
	if reason.Code(n.Code) == reason.NotReady {
		return
	}
	starved := stalled(v, n, add)
	hit := slices.DeleteFunc(slices.Clone(v.Faults), func(f Fault) bool { return !f.on(w, v) })
	for _, f := range hit {
		add("`rdmalab faults`", "A fault is, or was, on this way, and has hit %s: %s.", plural(f.Hits, "packet", "packets"), f.Text)
	}
	if len(hit) == 0 && !starved {
		add("drops in `rdmalab counters switch`", "No fault rule on this way has hit a packet.")
	}
}

// stalled tells of the longest time in which the switch or a host did not run while a work request waited,
// and reports whether there was one.
func stalled(v *View, n *hostd.NoteStatus, add adder) bool {
	began := n.Since
	if began.IsZero() {
		began = n.At.Add(-max(n.Wait, stall.Least))
	}
	var worst Stall
	for _, s := range v.Stalls {
		if s.Began.Before(n.At) && s.End().After(began) && s.Took > worst.Took {
			worst = s
		}
	}
	if worst.Took == 0 {
		return false
	}
	add("`priority: realtime` in the rack file", "%s did not run for %v, from %s on: its process got no processor, or was stopped. That delays packets as long.",
		worst.Node, short(worst.Took), worst.Began.Format("15:04:05.000"))
	return true
}

// packetOf names a packet by its place in a work request.
func packetOf(w *hostd.WorkStatus, psn uint32) string {
	if w == nil || w.Packets == 0 || diff(psn, w.PSN) < 0 || uint32(diff(psn, w.PSN)) >= w.Packets {
		return fmt.Sprintf("PSN %d", psn)
	}
	return fmt.Sprintf("packet %d of %d of %s %d (PSN %d)", diff(psn, w.PSN)+1, w.Packets, w.Op, w.Number, psn)
}

// requestOf names the request by the packet that a requester waits for, which is a response if it is a READ.
func requestOf(packet string) string {
	if strings.HasPrefix(packet, "response ") {
		return "the request for " + packet
	}
	return packet
}

// asResponder tells what the queue pair did with requests of its peer that were lost or came twice.
func asResponder(v *View, add adder) {
	q := v.Own.QP
	for _, kind := range []string{"missed", "repeated", "not ready", "dropped"} {
		if n := newest(q, kind); n != nil {
			add("", "As responder, %s notes: %s.", v.Own.Host, n.Text)
		}
	}
	if len(q.Notes) > 0 && q.PeerQPN != 0 {
		add("", "The requester's side has the rest: `rdmalab why %s %#x`.", v.Peer.Host, q.PeerQPN)
	}
}

// lookOf returns what to look at for a note of a host, with the names of the host and of its peer.
func lookOf(n *hostd.NoteStatus, host, peer string) string {
	r, ok := reason.Code(n.Code).Row()
	if !ok {
		return ""
	}
	return strings.NewReplacer("HOST", host, "PEER", peer).Replace(r.Look)
}

func total(t *reason.Totals) string {
	var parts []string
	for _, x := range []struct {
		n         uint64
		one, many string
	}{
		{t.Timeouts, "timeout", "timeouts"},
		{t.SequenceNaks, "sequence NAK", "sequence NAKs"},
		{t.ImpliedNaks, "implied NAK", "implied NAKs"},
		{t.RNRNaks, "RNR NAK", "RNR NAKs"},
		{t.Healed, "time healed", "times healed"},
	} {
		if x.n > 0 {
			parts = append(parts, plural(x.n, x.one, x.many))
		}
	}
	if t.Healed < 2 && t.Timeouts+t.SequenceNaks+t.ImpliedNaks+t.RNRNaks < 2 {
		return ""
	}
	return "In total since the queue pair was made: " + strings.Join(parts, ", ") + "."
}
