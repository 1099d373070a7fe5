package scenario

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// soloWatch is a node around a NIC that sees all messages that the NIC receives and sends. Their
// headers are not encrypted: from these it computes which bytes the NIC has solicited (requested
// from other NICs). It checks the window, the counters and the times at which memory changes. It
// also replays and forges messages.
type soloWatch struct {
	*soloHost
	frame    onerma.Frame
	activity uint64 // the last value of nic.NIC.Activity
	counter  uint64 // the counter in the last message that the NIC has sent
	// solicited has the data that the NIC has requested and not received: of its own READs, by slot,
	// and of WRITEs that it has pulled (a Pull requests a WRITE's data from the peer), by ticket.
	solicited map[soloID]*soloDebt
	before    []byte // an area before the NIC has processed a message; see look
}

// soloID names a READ of this NIC by its slot, or, with pulled, a WRITE of a peer by its ticket.
type soloID struct {
	pulled bool
	name   uint32
}

// soloDebt describes the data that the NIC has solicited for a READ or a pulled WRITE, and which
// units of it have arrived.
type soloDebt struct {
	generation uint32
	region     uint32
	length     int
	landed     [onerma.MaxOp / onerma.Unit]bool
	missing    int        // units that have not arrived
	until      clock.Time // the NIC accepts the data before this time
}

// crashed forgets the data that the NIC had solicited before its crash.
func (w *soloWatch) crashed() {
	clear(w.solicited)
	w.activity = 0
}

// Frame implements simnet.Node: it checks the message, the memory that the message changes, and the
// messages that the NIC sends.
func (w *soloWatch) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	ok := onerma.ParseFrame(f.Data, &w.frame) == nil
	watched := -1
	if ok {
		w.arrived(now, &w.frame)
		watched = w.look(&w.frame)
	}
	w.machine.Frame(now, port, f, out)
	if watched >= 0 {
		w.compare(watched, &w.frame)
	}
	w.sent(now, out)
}

func (w *soloWatch) Tick(now clock.Time, out *packetio.Batch) {
	w.machine.Tick(now, out)
	w.sent(now, out)
}

func (w *soloWatch) Deadline() clock.Time { return w.machine.Deadline() }

// look is called before the NIC processes a message. If the message is data of a WRITE to an area,
// look keeps the present bytes of the area and returns the area's number. Otherwise it returns -1.
func (w *soloWatch) look(f *onerma.Frame) int {
	region := int(f.Region) - 1
	if f.Kind != onerma.Data || f.Op != onerma.Write || region < 0 || region >= soloRegions || f.Offset >= soloSize {
		return -1
	}
	spot := int(f.Offset) / soloArea
	w.before = append(w.before[:0], w.memory[region][spot*soloArea:][:soloArea]...)
	return spot
}

// compare is called after the NIC has processed a data message. It checks that the area has changed
// only if a WRITE to it is in flight.
func (w *soloWatch) compare(spot int, f *onerma.Frame) {
	region := int(f.Region) - 1
	a := &w.areas[region][spot]
	if a.writing == nil && w.run.net.Now() >= a.loose && !bytes.Equal(w.before, w.memory[region][spot*soloArea:][:soloArea]) {
		w.run.stop("%s: memory has changed by %v, and its initiator has seen the end of the WRITE", soloName(w.index), f)
	}
}

// arrived is called for a message that the NIC receives. It removes a READ or pulled WRITE from
// solicited if the message is the last of its data, and a READ also if the message refuses it.
func (w *soloWatch) arrived(now clock.Time, f *onerma.Frame) {
	w.expire(now)
	id := soloID{name: uint32(f.Slot)}
	if f.Op != onerma.Read {
		id = soloID{true, f.Ticket}
	}
	debt := w.solicited[id]
	if debt == nil || debt.generation != f.Generation {
		return
	}
	switch f.Kind {
	case onerma.Nack, onerma.AuthFail:
		if f.Op == onerma.Read {
			delete(w.solicited, id)
		}
	case onerma.Data:
		for i := int(f.At) / onerma.Unit; i*onerma.Unit < int(f.At)+len(f.Sealed)-onerma.TagLen; i++ {
			if !debt.landed[i] {
				debt.landed[i] = true
				debt.missing--
			}
		}
		if debt.missing <= 0 {
			delete(w.solicited, id)
		}
	case onerma.Request, onerma.Pull, onerma.Done:
	}
}

func (w *soloWatch) expire(now clock.Time) {
	maps.DeleteFunc(w.solicited, func(_ soloID, debt *soloDebt) bool { return debt.until <= now })
}

// outstanding returns the total length of the READs and pulled WRITEs that are not complete.
func (w *soloWatch) outstanding() int {
	sum := 0
	for _, debt := range w.solicited {
		sum += debt.length
	}
	return sum
}

// sent checks the messages that the NIC sends, and wakes the NIC's processes if a command has ended
// (see nic.NIC.Activity).
func (w *soloWatch) sent(now clock.Time, out *packetio.Batch) {
	w.expire(now)
	for _, f := range out.Frames {
		if err := onerma.ParseFrame(f.Data, &w.frame); err != nil {
			w.run.stop("%s sends a message that does not parse: %w", soloName(w.index), err)
			return
		}
		w.one(now, &w.frame)
		w.attack(f.Data, &w.frame)
	}
	if a := w.nic.Activity(); a != w.activity {
		w.activity = a
		for _, p := range w.procs {
			p.Wake()
		}
	}
}

// one checks one message that the NIC sends: its counter must grow, and the window must have room
// for the bytes that the message solicits.
func (w *soloWatch) one(now clock.Time, f *onerma.Frame) {
	if f.Counter <= w.counter {
		w.run.stop("%s: the counter of %v repeats: the last one was %#x", soloName(w.index), f, w.counter)
	}
	w.counter = f.Counter
	id := soloID{name: uint32(f.Slot)}
	switch {
	case f.Kind == onerma.Request && f.Op == onerma.Read:
	case f.Kind == onerma.Pull:
		id = soloID{true, f.Ticket}
	case f.Kind == onerma.Done && f.Op == onerma.Rekey:
		w.revoked(f.Region)
		return
	default:
		return
	}
	delete(w.solicited, id) // the command that had this slot or ticket before has ended
	size, used := w.run.plan.window, w.outstanding()
	if size-used < onerma.MaxOp {
		w.run.stop("%s solicits by %v while %d bytes of %d are outstanding: 4096 must be free", soloName(w.index), f, used, size)
	}
	w.solicited[id] = &soloDebt{
		generation: f.Generation, region: f.Region, length: int(f.Length), missing: (int(f.Length) + onerma.Unit - 1) / onerma.Unit, until: now.Add(4 * w.run.plan.rtt),
	}
}

// revoked forgets the WRITEs to a region whose key was replaced: their data is not accepted any
// more.
func (w *soloWatch) revoked(region uint32) {
	maps.DeleteFunc(w.solicited, func(id soloID, debt *soloDebt) bool { return id.pulled && debt.region == region })
}

// attack replays some messages of the NIC later. It also forges refusals of the NIC's requests: an
// AUTHFAIL and a NACK for the slot's command before the present one, and a NACK for the present
// one. An attacker can forge these, because it sees the request and needs no secret key (see
// forge).
func (w *soloWatch) attack(frame []byte, f *onerma.Frame) {
	r := w.run
	if r.over {
		return
	}
	to := int(f.IPv4.Dst[3]) - 1
	if r.plan.replays && r.env.draw.chance(0.1) && to >= 0 && to < len(r.hosts) {
		again := slices.Clone(frame)
		r.net.At(r.net.Now().Add(r.env.draw.span(0, 30*r.plan.rtt)), func() {
			r.net.Inject(r.hosts[to].link, fault.Down, packetio.Frame{Data: again}, []string{"replay"})
		})
	}
	if r.plan.forgeries && f.Kind == onerma.Request && r.env.draw.chance(0.3) {
		old := *f
		old.Generation--
		for _, forged := range [][]byte{forge(&old, onerma.AuthFail), forge(&old, onerma.Nack), forge(f, onerma.Nack)} {
			r.net.At(r.net.Now().Add(r.env.draw.span(0, r.plan.rtt)), func() {
				r.net.Inject(w.link, fault.Down, packetio.Frame{Data: forged}, []string{"forgery"})
			})
		}
	}
}

// forge makes a refusal of kind k for a request. Refusals are encrypted with the reserved key,
// which is not secret.
func forge(request *onerma.Frame, k onerma.Kind) []byte {
	f := *request
	f.Kind, f.Counter = k, request.Counter|1<<63
	f.Eth.Src, f.Eth.Dst = request.Eth.Dst, request.Eth.Src
	f.IPv4.Src, f.IPv4.Dst = request.IPv4.Dst, request.IPv4.Src
	key := nic.ReservedKey()
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	b := f.AppendOpen(nil, 0)
	iv := append(binary.BigEndian.AppendUint64(nil, f.Counter), f.IPv4.Src[:]...)
	prev := append(binary.BigEndian.AppendUint64(nil, request.Counter), request.IPv4.Src[:]...)
	return gcm.Seal(b, iv, nil, append(f.Header.AppendTo(nil), prev...))
}
