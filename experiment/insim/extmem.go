package insim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// lentPoll is the interval at which a load checks a condition for which it waits. lentPatience is
// the virtual time until which the switch must have made its connections and filled its tables; a
// load that waits longer fails.
const (
	lentPoll     = 10 * time.Microsecond
	lentPatience = clock.Time(2 * time.Second)
)

// frameType is the EtherType of the frames of BufferRate and Incast, one of those for local
// experiments. frameHead is the length of the Ethernet header and the two fields behind it: the
// number of the sender and the number of the frame.
const (
	frameType = 0x88b5
	frameHead = 14 + 8
)

// lentRun is a rack whose servers ms1, ms2 and so on lend their memory to the switch.
type lentRun struct {
	rack *simrack.Rack
	rate int64 // rate of each link, in bits a second
	over int   // overhead of a frame on the wire in bytes
	// memory[i] is the memory of server ms<i>.
	memory [][]byte
	// seen is called with each frame that arrives at a host. It returns true if the frame belongs
	// to the load; then the host does not get the frame.
	seen func(now clock.Time, host string, frame []byte) bool
}

// lentRack describes the rack of a lentRun: compute hosts, servers besides ms0, the bytes that each
// server lends (at least 64 KiB), and the rule of the switch; "" means that it only forwards. queue
// is how many frames may wait for a link; 0 means that no frame is lost there.
type lentRack struct {
	hosts, servers, bytes int
	rule                  string
	queue                 int
}

func (p *Sim) lent(ctx context.Context, l lentRack, seen func(now clock.Time, host string, frame []byte) bool) (*lentRun, error) {
	file := fmt.Sprintf("name: lent\nhosts:\n  - {name: \"cn[0-%d]\", role: compute}\n  - {name: \"ms[0-%d]\", role: memory}\n", l.hosts-1, l.servers)
	if l.rule != "" {
		file += "switch:\n  program: swordbox\n  rules:\n    - {" + l.rule + "}\n"
	}
	m := p.model(&experiment.Switch{LineRate: true})
	r := &lentRun{rate: m.Link.Rate, over: m.Link.Overhead, seen: seen}
	if r.rate == 0 {
		return nil, errors.New("the cost model has no rate of links, which this load needs")
	}
	var err error
	if r.rack, err = newRack(ctx, file, simrack.Options{Cost: m, Queue: l.queue, Datagrams: true, Wrap: r.wrap}); err != nil {
		return nil, err
	}
	for i := range l.servers + 1 {
		r.memory = append(r.memory, make([]byte, max(64<<10, l.bytes)))
		serveMemory(r.rack, i, memservice.Config{Buffer: r.memory[i]})
	}
	r.rack.At(0, r.rack.Announce)
	return r, nil
}

// wrap puts a Tap in front of each host: it passes each arriving frame to r.seen, and then to the
// host if seen has returned false.
func (r *lentRun) wrap(name string, n simnet.Node) simnet.Node {
	if name == rackfile.SwitchName || r.seen == nil {
		return n
	}
	return &simnet.Tap{Node: n, Pass: func(now clock.Time, _ int, f *packetio.Frame) bool { return !r.seen(now, name, f.Data) }}
}

// drive runs f as a program of cn0 when the switch has made conns connections to servers. Then it
// ends the simulation.
func (r *lentRun) drive(ctx context.Context, conns int, f func(ctx verbs.Context) error) error {
	defer r.rack.Close()
	h := r.rack.Host("cn0")
	h.Go("driver", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for !r.connected(conns) {
			if rt.Sleep(lentPoll); rt.Now() > lentPatience {
				r.rack.Stop(fmt.Errorf("the switch has not made its %d connections after %v", conns, lentPatience))
				return
			}
		}
		rt.Sleep(time.Millisecond) // until the last messages of the handshakes have arrived
		r.rack.Stop(f(ctx))
	})
	return run(ctx, r.rack)
}

func (r *lentRun) connected(conns int) bool {
	b, ok := r.rack.Program().(*swordbox.Program)
	return conns == 0 || ok && b.Own().Dialer().Stats().Established >= uint64(conns)
}

func (r *lentRun) setRule(text string) error {
	rule, err := r.rack.Rule(text)
	if err == nil {
		err = r.rack.SetRules(rule)
	}
	if err == nil {
		r.rack.StepSwitch(r.rack.Program().Tick)
	}
	return err
}

// slot returns how long a frame of n bytes takes on a link.
func (r *lentRun) slot(n int) time.Duration {
	return time.Duration(int64(n+r.over) * 8 * int64(time.Second) / r.rate)
}

// chunk is how many frames a sender hands to its link at a time.
const chunk = 16

// send makes host cn<sender> send count frames of n bytes to ms0 at the rate of its link, from now
// on. Each frame has its number.
func (r *lentRun) send(sender, n, count int) {
	h := r.rack.Host(fmt.Sprintf("cn%d", sender))
	b := make([]byte, n)
	to := r.rack.Host("ms0").Spec.MAC
	copy(b, to[:])
	copy(b[6:], h.Spec.MAC[:])
	binary.BigEndian.PutUint16(b[12:], frameType)
	binary.BigEndian.PutUint32(b[14:], uint32(sender))
	began, i := r.rack.Now(), 0
	var next func()
	next = func() {
		for range min(chunk, count-i) {
			binary.BigEndian.PutUint32(b[18:], uint32(i))
			h.Inject(fault.Up, b, nil)
			i++
		}
		if i < count {
			r.rack.At(began.Add(time.Duration(i)*r.slot(n)), next)
		}
	}
	r.rack.At(began, next)
}

// numberOf returns the sender and the number of a frame that the method send has made. ok is false
// if send has not made the frame.
func numberOf(b []byte) (sender, n int, ok bool) {
	if len(b) < frameHead || binary.BigEndian.Uint16(b[12:]) != frameType {
		return 0, 0, false
	}
	return int(binary.BigEndian.Uint32(b[14:])), int(binary.BigEndian.Uint32(b[18:])), true
}

// asText converts a rule in the form of a rack file into the text form that commands use.
func asText(rule string) string {
	return strings.NewReplacer(": ", "=", ", ", " ", `"`, "").Replace(rule)
}

// serverList lists n servers from ms1 on.
func serverList(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("ms%d", i+1))
	}
	return strings.Join(list, ",")
}

// perSecond returns the rate of events that happened at the given times, from the first to the
// last.
func perSecond(times []clock.Time) (float64, error) {
	if len(times) < 2 || times[len(times)-1] <= times[0] {
		return 0, fmt.Errorf("only %d events in the measured time: too few for a rate", len(times))
	}
	return float64(len(times)-1) / times[len(times)-1].Sub(times[0]).Seconds(), nil
}
