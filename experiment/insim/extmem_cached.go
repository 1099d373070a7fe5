package insim

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	cachedClients = 4   // hosts of clients, behind those of key-value servers
	cachedSize    = 256 // bytes of a cell
	cachedValue   = 128 // bytes of a value, as NetCache's
	cachedHot     = 2
	// cachedRounds is how often clients ask for each of the hottest keys, before operations are drawn; cachedWarm is how
	// long these go on before they are counted.
	cachedRounds = cachedHot + 2
	cachedWarm   = 6 * time.Millisecond
	cachedUDP    = 11211
	cachedFrom   = 40000
	cachedHead   = 14 + 20 + 8 // the length of headers of Ethernet, IPv4 and UDP
)

// cachedLoad is a Cached in progress.
type cachedLoad struct {
	*lentRun
	experiment.Cached
	rng       *rand.Rand
	zipf      *kv.Zipf
	busy      []clock.Time // by key-value server: until when its program works
	version   []uint64     // by key: of the value that its server has
	settled   []uint64     // by key: the newest version whose write was answered
	number    uint64       // of the newest write
	warming   int          // GETs of the hottest keys that are not sent yet
	warmed    int          // those that were answered
	clients   [cachedClients]cachedClient
	from, to  clock.Time // when operations are counted; 0: that is not known yet
	over      bool
	pending   int
	gets      []time.Duration
	out       experiment.CachedResult
	ops       int
	switchHit int
}

// cachedClient has the operations of a client by their numbers.
type cachedClient struct {
	ops  []cachedOp
	free []uint16
}

// cachedOp is an operation in flight. at is when it was sent; least is the oldest version that may be an answer.
type cachedOp struct {
	key    int
	at     clock.Time
	write  bool
	number uint64 // of the write
	least  uint64
	warms  bool
	open   bool
}

func (p *Sim) Cached(ctx context.Context, l experiment.Cached) (experiment.CachedResult, error) {
	rack := lentRack{hosts: l.Servers + cachedClients, servers: l.Memory, bytes: 64 + (l.Servers*l.Items/l.Memory+l.Servers)*cachedSize}
	conns := 0
	if !l.Plain {
		conns = l.Servers * l.Memory
		each := (l.Items/l.Memory + 1) * cachedSize
		var list []string
		for i := range l.Servers {
			list = append(list, fmt.Sprintf("id: kv%d, server: cn%d, action: cache, store: %q, at: %d, items: %d, size: %d, hot: %d, depth: 16",
				i, i, serverList(l.Memory), i*each, l.Items, cachedSize, cachedHot))
		}
		rack.rule = strings.Join(list, "}\n    - {")
	}
	run := &cachedLoad{
		Cached: l, rng: rand.New(rand.NewPCG(1, 2)), zipf: kv.NewZipf(l.Keys, l.Zipf), busy: make([]clock.Time, l.Servers), version: make([]uint64, l.Keys), settled: make([]uint64, l.Keys),
	}
	var err error
	if run.lentRun, err = p.lent(ctx, rack, run.see); err != nil {
		return run.out, err
	}
	if err := run.drive(ctx, conns, run.work); err != nil {
		return run.out, err
	}
	slices.Sort(run.gets)
	if n := len(run.gets); n > 0 {
		run.out.P50, run.out.P99 = run.gets[n/2], run.gets[n*99/100]
		run.out.Hits = float64(run.switchHit) / float64(n)
	}
	run.out.Rate, run.out.Lost = float64(run.ops)/l.Run.Seconds(), run.pending
	return run.out, nil
}

// work lets the switch see the hottest keys, runs the load, and waits for the last answer.
func (r *cachedLoad) work(ctx verbs.Context) error {
	rt := ctx.Runtime()
	if !r.Plain {
		r.warming = r.Servers * r.Items * cachedRounds
	}
	window := max(r.Window, cachedClients)
	for i := range window {
		r.send(i % cachedClients)
	}
	for warm := r.warming; r.warmed < warm; rt.Sleep(lentPoll) {
		if rt.Now() > lentPatience {
			return fmt.Errorf("%d of %d GETs were answered: %v", r.warmed, warm, r.rack.Counters("cache"))
		}
	}
	r.from = rt.Now().Add(cachedWarm)
	r.to = r.from.Add(r.Run)
	if r.Rate > 0 {
		r.pace()
	}
	rt.Sleep(cachedWarm + r.Run)
	r.over = true
	for end := rt.Now().Add(time.Second); r.pending > 0 && rt.Now() < end; {
		rt.Sleep(lentPoll)
	}
	return nil
}

// pace sends an operation, and the next one after a random time.
func (r *cachedLoad) pace() {
	if r.over {
		return
	}
	r.send(r.rng.IntN(cachedClients))
	r.rack.At(r.rack.Now().Add(time.Duration(r.rng.ExpFloat64()/r.Rate*1e9)), r.pace)
}

// serverOf returns the key-value server of a key.
func (r *cachedLoad) serverOf(key int) int {
	h := (uint64(key) + 1) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	return int(h * 0xbf58476d1ce4e5b9 >> 33 % uint64(r.Servers))
}

// send sends the next operation of a client: a GET of one of the hottest keys before others are drawn.
func (r *cachedLoad) send(client int) {
	c, now := &r.clients[client], r.rack.Now()
	if len(c.free) == 0 {
		c.free = append(c.free, uint16(len(c.ops)))
		c.ops = append(c.ops, cachedOp{})
	}
	id := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	op := &c.ops[id]
	*op = cachedOp{at: now, open: true}
	text := ""
	switch {
	case r.warming > 0:
		r.warming--
		op.key, op.warms = r.warming%(r.Servers*r.Items), true
	default:
		op.key = int(r.zipf.Next(r.rng))
		op.write = r.rng.Float64()*100 < r.Writes
	}
	if op.write {
		r.number++
		op.number = r.number
		text = fmt.Sprintf("set key%06d 0 0 %d\r\n%s\r\n", op.key, cachedValue, cachedData(op.number))
	} else {
		op.least = r.settled[op.key]
		text = fmt.Sprintf("get key%06d\r\n", op.key)
	}
	r.pending++
	r.transmit(r.Servers+client, r.serverOf(op.key), uint16(cachedFrom+client), id, text)
}

func cachedData(version uint64) string {
	b := strconv.AppendUint(nil, version, 10)
	return string(append(b, strings.Repeat(".", cachedValue-len(b))...))
}

// transmit sends a datagram from host cn<from> to host cn<to>. port is that of the client.
func (r *cachedLoad) transmit(from, to int, port, id uint16, text string) {
	a, z := r.rack.Host(fmt.Sprintf("cn%d", from)), r.rack.Host(fmt.Sprintf("cn%d", to))
	be, n := binary.BigEndian, 16+len(text)
	eth := wire.Ethernet{Dst: z.Spec.MAC, Src: a.Spec.MAC, Type: wire.EtherTypeIPv4}
	ip := wire.IPv4{TTL: 64, Protocol: 17, Src: a.Addr().As4(), Dst: z.Addr().As4()}
	b := ip.AppendTo(eth.AppendTo(nil), n)
	ports := [2]uint16{port, cachedUDP}
	if from < r.Servers {
		ports = [2]uint16{cachedUDP, port}
	}
	b = be.AppendUint16(be.AppendUint16(be.AppendUint16(b, ports[0]), ports[1]), uint16(n))
	b = append(be.AppendUint16(append(b, 0, 0), id), 0, 0, 0, 1, 0, 0) // no checksum
	a.Inject(fault.Up, append(b, text...), nil)
}

// see is the function lentRun.seen of the load.
func (r *cachedLoad) see(now clock.Time, host string, b []byte) bool {
	be := binary.BigEndian
	if len(b) < cachedHead+8 || be.Uint16(b[12:]) != wire.EtherTypeIPv4 || b[23] != 17 || !strings.HasPrefix(host, "cn") {
		return false
	}
	from, to := be.Uint16(b[34:]), be.Uint16(b[36:])
	n, _ := strconv.Atoi(host[2:]) // the rack file has it
	id, text := be.Uint16(b[cachedHead:]), string(b[cachedHead+8:])
	switch {
	case to == cachedUDP && n < r.Servers:
		client := r.clientOf(b[26:30])
		r.busy[n] = max(r.busy[n], now).Add(r.Serve)
		r.rack.At(r.busy[n], func() { r.transmit(n, r.Servers+client, from, id, r.execute(text)) })
	case from == cachedUDP && n >= r.Servers:
		r.answered(now, n-r.Servers, id, text, b)
	default:
		return false
	}
	return true
}

func (r *cachedLoad) clientOf(addr []byte) int {
	for i := range cachedClients {
		if a := r.rack.Host(fmt.Sprintf("cn%d", r.Servers+i)).Addr().As4(); [4]byte(addr) == a {
			return i
		}
	}
	return 0
}

// execute executes a request at its server, and returns the answer.
func (r *cachedLoad) execute(text string) string {
	key, _ := strconv.Atoi(text[7:13]) // send has made it
	if text[0] == 's' {
		_, data, _ := strings.Cut(text, "\r\n")
		r.version[key] = versionOf(data)
		return "STORED\r\n"
	}
	return fmt.Sprintf("VALUE key%06d 0 %d\r\n%s\r\nEND\r\n", key, cachedValue, cachedData(r.version[key]))
}

func versionOf(data string) uint64 {
	head, _, _ := strings.Cut(data, ".")
	v, _ := strconv.ParseUint(head, 10, 64) // cachedData has made it
	return v
}

// answered ends an operation, and sends the next one if operations are kept in flight.
func (r *cachedLoad) answered(now clock.Time, client int, id uint16, text string, frame []byte) {
	c := &r.clients[client]
	if int(id) >= len(c.ops) || !c.ops[id].open {
		r.out.Wrong++
		return
	}
	op := &c.ops[id]
	line, data, _ := strings.Cut(text, "\r\n")
	switch {
	case op.write:
		if line != "STORED" {
			r.out.Wrong++
		}
		r.settled[op.key] = max(r.settled[op.key], op.number)
	case line != fmt.Sprintf("VALUE key%06d 0 %d", op.key, cachedValue) || versionOf(data) < op.least:
		r.out.Wrong++
	}
	if op.warms {
		r.warmed++
	}
	if r.from > 0 && now >= r.from && now < r.to {
		r.ops++
		if now < r.from.Add(r.Run/2) {
			r.out.Halves[0]++
		} else {
			r.out.Halves[1]++
		}
		if !op.write {
			r.gets = append(r.gets, now.Sub(op.at))
			// The server sends no checksum, and the switch does.
			if binary.BigEndian.Uint16(frame[cachedHead-2:]) != 0 {
				r.switchHit++
			}
		}
	}
	op.open = false
	c.free = append(c.free, id)
	r.pending--
	if !r.over && (r.Rate == 0 || r.warming > 0) {
		r.rack.At(now, func() { r.send(client) })
	}
}
