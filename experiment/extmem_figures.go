package experiment

import (
	"math"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// memoryFigures measures the figures of the HotNets paper on external memory.
var memoryFigures = Experiment{
	Name:   "memory-figures",
	Short:  "the figures of the paper on external memory, each number beside the authors'",
	Figure: "External Memory for Switch Data Planes: packet buffer, lookup table, state store; TEA: lookups; NetCache",
	Lists: func() map[string][]string {
		return map[string][]string{"Figures": titles(memory), "Choices": memoryChoices}
	},
	Sim: "75 s with two processors, with --quick 25 s", Cost: "connectx3-40g",
	New: func() Body { return &figuresBody{all: memory, choices: memoryChoices} },
}

// memoryRates measures how fast frames go to the ring of a packet buffer (store) and come back
// (load), beside native RDMA. It also runs on a rack.
var memoryRates = Experiment{
	Name:   "memory-rates",
	Short:  "rates at which a switch stores frames in a server's memory and loads them, beside native RDMA in the same run",
	Figure: "Generic External Memory for Switch Data Planes: rates of store and load",
	Sim:    "5 s", Rack: "1 min", Target: "ring", Cost: "connectx3-40g",
	New: func() Body {
		return &ratesBody{figuresBody: figuresBody{all: func(bool) []figure { return []figure{bufferRates(Hardened)} }, choices: memoryChoices[:2]}}
	},
}

// memoryChoices lists the assumptions of the model where the paper does not say enough, and its
// simplifications.
var memoryChoices = []string{
	"frames have 1,500 bytes without check sequence; entries of the ring have 1,552: a header of 32, and room for any frame",
	"a NIC is limited by its requests per second and by its link, not by PCIe bandwidth, and its queues do not overflow",
	"links lose nothing; frames that wait for a link to a server count as frames in the switch",
	"rates of FETCH_ADDs and latencies of the NIC are those of ConnectX-5, because no source gives those of ConnectX-3 Pro",
	"the switch counts WRITEs of a client; the paper's switch counts packets of any protocol",
	"the time of a lookup is measured on one way from sender to receiver; the paper's program NPtcp halves a round trip",
}

// Sizes in the authors' setting, in bytes. memoryFrame is the length of a frame, memoryEntry that
// of an entry of the ring, incastBytes that of all frames of the incast together. incastRoom is the
// length of the frames that fit into the switch. longMessage is the length of the longer one of the
// native messages.
const (
	memoryFrame = 1500
	memoryEntry = 1552
	memoryDepth = 16 // READs or FETCH_ADDs that ConnectX-3 can have in flight on a queue pair
	incastBytes = 50_000_000
	incastRoom  = 12_000_000
	longMessage = 64 << 10
)

func memory(quick bool) []figure {
	return []figure{
		bufferRates(Hardened, Published), loadDepth(quick), incastFigure(quick), beginFigure(quick), reliefFigure(quick), lookupLatency(quick), lookupRates(quick), countingFigure(), circleFigure(), cachedFigure(quick), cachedWritesFigure(quick),
	}
}

func (o *outcome) gbps() float64 { return o.rate / 1e9 }

// nativeFrames is the series of native verbs with which the switch's rates of store and load are
// compared.
const nativeFrames = "native, messages of 1,500 bytes"

// bufferRates is the figure of the rates at which frames are stored in a server's memory and loaded
// from there: by a rule of action buffer in each of the given modes, and by native verbs.
func bufferRates(modes ...string) figure {
	f := figure{
		data: papers.MustLoad("extmem/rates"), key: "rates", title: "rates at which frames of 1,500 bytes are stored and loaded, one server", format: "%.3g",
		base: nativeFrames, gains: []string{Store},
		why: []string{
			"store takes the whole link here; the authors report the rate without loss, and beyond it their NIC drops requests, which the model's does not",
			"an entry that comes back has a header of 32 bytes and its whole length, which takes 2 % of the link",
		},
	}
	type series struct {
		name, their string
		load        BufferRate
	}
	var list []series
	for _, m := range modes {
		list = append(list, series{"switch, " + m, "switch", BufferRate{Mode: m, Bytes: memoryFrame, Entry: memoryEntry, Depth: memoryDepth}})
	}
	list = append(list, series{"native, messages of 64 KiB", "native", BufferRate{Native: true, Bytes: longMessage}},
		series{nativeFrames, "native", BufferRate{Native: true, Bytes: memoryFrame}})
	for s, x := range pairs(list, f.data.Columns) {
		l := s.load
		l.Direction = x
		f.add(figureCell{series: s.name, their: s.their, x: x, theirs: f.at("", s.their, x), load: l, value: (*outcome).gbps})
	}
	return f
}

func loadDepth(quick bool) figure {
	f := figure{
		data: papers.MustLoad("extmem/rates"), key: "depth", title: "rate at which frames of 1,500 bytes are loaded, by READs in flight",
		x: "READs in flight", format: "%.1f",
		why: []string{"the authors do not say how many READs they have in flight; their rate is beside our largest number; a READ of the hardened rule brings two entries"},
	}
	for mode, n := range pairs([]string{Hardened, Published}, few([]string{"1", "2", "4", "8", "16"}, quick)) {
		c := figureCell{
			series: mode, their: "authors, load", x: n, theirs: math.NaN(), value: (*outcome).gbps,
			load: BufferRate{Direction: Load, Mode: mode, Bytes: memoryFrame, Entry: memoryEntry, Depth: int(number(n))},
		}
		if n == strconv.Itoa(memoryDepth) {
			c.theirs = f.at("", "switch", Load)
		}
		f.add(c)
	}
	f.add(figureCell{
		series: "entries of 2,048 bytes", their: "authors, load", x: strconv.Itoa(memoryDepth), theirs: f.at("", "switch", Load), value: (*outcome).gbps,
		load: BufferRate{Direction: Load, Mode: Hardened, Bytes: memoryFrame, Entry: 2048, Depth: memoryDepth},
	})
	return f
}

func incastFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("extmem/incast"), key: "incast", title: "what arrives of 50 MB: eight senders, one port, 40 Gb/s each, 12 MB of buffer, by the number of servers",
		unit: "MB, ms", format: "%.3g",
		why: []string{
			"a server takes 36.8 Gb/s of the 280 Gb/s that the port does not: few servers are full before the burst is over (figure rates)",
			"frames and gaps between them take 1.6 % of the port beside their bytes, so 50 MB take 10.2 ms",
		},
		inputs: []string{"rates of the links and room of the switch: the first loss without a ring, and the last frame, follow from them by arithmetic, the authors' too"},
	}
	for _, n := range few([]string{"0", "1", "2", "4", "6", "8"}, quick) {
		l := Incast{Senders: 8, Bytes: incastBytes, Frame: memoryFrame, Room: incastRoom / memoryFrame, Servers: int(number(n)), Mode: Hardened}
		if quick {
			l.Bytes, l.Room = l.Bytes/10, l.Room/10
		}
		for _, c := range []namedValue{
			{"arrived, MB", func(o *outcome) float64 { return float64(o.incast.Arrived) / 1e6 }},
			{"most in the switch, MB", func(o *outcome) float64 { return float64(o.incast.Peak) / 1e6 }},
			{"first loss, ms", func(o *outcome) float64 {
				if o.incast.Loss == 0 {
					return math.NaN()
				}
				return 1e3 * o.incast.Loss.Seconds()
			}},
			{"last frame, ms", func(o *outcome) float64 { return 1e3 * o.incast.Last.Seconds() }},
		} {
			theirs, _, _ := strings.Cut(c.name, ",")
			cell := figureCell{panel: c.name, series: "hardened", their: "computed", x: n, theirs: f.at(theirs, "ring", n), load: l, value: c.value}
			if quick {
				cell.theirs = math.NaN() // not comparable: a quick run sends a tenth of the bytes
			}
			f.add(cell)
		}
	}
	return f
}

// beginFigure answers what the paper calls ongoing work: when the switch is to begin to load frames from
// the ring. Too late, the port waits for READs; too early, frames wait in the switch for the port.
func beginFigure(quick bool) figure {
	f := figure{
		key: "begin", title: "eight senders, 10 MB, ring on 8 servers, by the number of waiting frames at which loading begins",
		x: "waiting frames", unit: "ms, KB", format: "%.4g",
		why: []string{"the authors leave it open; a READ takes about 3 us, in which the port sends ten frames"},
	}
	for _, low := range few([]string{"1", "2", "4", "8", "16", "32", "64", "256", "512"}, quick) {
		l := Incast{Senders: 8, Bytes: incastBytes / 5, Frame: memoryFrame, Room: incastRoom / 5 / memoryFrame, Servers: 8, Low: int(number(low)), Mode: Hardened}
		for _, c := range []namedValue{
			{"last frame, ms", func(o *outcome) float64 { return 1e3 * o.incast.Last.Seconds() }},
			{"KB in the switch after the senders' end", func(o *outcome) float64 { return o.incast.Held / 1e3 }},
		} {
			f.add(ours(c.name, "hardened", low, l, c.value))
		}
	}
	return f
}

func lookupLatency(quick bool) figure {
	f := figure{
		data: papers.MustLoad("extmem/lookup"), key: "latency", title: "median time that a lookup adds to the forwarding of a packet, by bytes of the packet",
		format: "%.2f",
		why:    []string{"no number of ours stands for one of theirs: they give a range for all sizes"},
	}
	sizes := few([]string{"64", "128", "256", "512", "1024"}, quick)
	for _, s := range []struct{ name, where, mode string }{{"hardened", LookupRemote, Hardened}, {"published", LookupRemote, Published}, {"hardened, in the cache", LookupCached, Hardened}} {
		for _, n := range sizes {
			f.add(ours("", s.name, n,
				Lookups{Where: s.where, Mode: s.mode, Bytes: int(number(n)), Window: 1, Flows: 16, Servers: 1}, func(o *outcome) float64 { return 1e6 * o.added.Seconds() }))
		}
	}
	for _, s := range []struct{ name, data string }{{"authors, at least", "least"}, {"authors, at most", "most"}, {"authors of TEA, at least", "TEA least"}, {"authors of TEA, at most", "TEA most"}} {
		for _, n := range f.data.Columns {
			f.add(figureCell{series: s.name, their: s.name, x: n, theirs: f.at("", s.data, n)})
		}
	}
	return f
}

func lookupRates(quick bool) figure {
	f := figure{
		data: papers.MustLoad("extmem/lookups"), key: "lookups", title: "lookups per second of packets of 64 bytes, by the number of servers", format: "%.2f",
		why: []string{
			"the model's NIC takes 18.6 million requests a second of a queue pair, and a lookup is three; TEA's NICs and connections are others, and " +
				"its abstract does not name them",
			"the published rule reads slot and cell as a whole, 2,112 bytes, which fills the link",
			"the next packet is sent when one has arrived, so the server that gets the most lookups holds up the others",
		},
	}
	for m, n := range pairs([]string{Hardened, Published}, few([]string{"1", "2", "4", "8"}, quick)) {
		f.add(figureCell{
			series: m, their: "TEA", x: n, theirs: f.at("", "TEA", n), value: func(o *outcome) float64 { return o.lookups.Rate / 1e6 },
			load: Lookups{Where: LookupRemote, Mode: m, Bytes: 64, Window: 64 * int(number(n)), Flows: 1024, Servers: int(number(n))},
		})
	}
	return f
}

func countingFigure() figure {
	f := figure{
		data: papers.MustLoad("extmem/counters"), key: "counters", title: "rates of a client's WRITEs, and of the FETCH_ADDs that count them in a server, by FETCH_ADDs in flight",
		format: "%.4g",
		why: []string{
			"their rate is that of their NIC; the model has ConnectX-5's rate of FETCH_ADDs on one word",
			"the published rule leaves in the switch what has waited when the requests end",
		},
		inputs: []string{
			"ours of FETCH_ADDs: the cost file has the rate of one queue pair",
			"the 1.3 of FETCH_ADDs beside it is not the authors': it is their 2.1 Gb/s divided by the bytes of request and response on the wire",
		},
	}
	for _, p := range []namedValue{
		{"traffic in Gb/s", func(o *outcome) float64 { return o.counting.Traffic / 1e9 }},
		{"FETCH_ADDs in Mops", func(o *outcome) float64 { return o.counting.Adds / 1e6 }},
		{"counted in the store in %", func(o *outcome) float64 { return 100 * float64(o.counting.Counted) / float64(max(1, o.counting.Sent)) }},
		{"client's rate in % of that without counting", func(o *outcome) float64 { return 100 * o.share }},
	} {
		for m, n := range pairs([]string{Hardened, Published}, []string{"1", "4", "16"}) {
			f.add(figureCell{
				panel: p.name, series: m, their: "switch", x: n, theirs: f.at(p.name, "switch", n), value: p.value,
				load: Counting{Mode: m, Depth: int(number(n)), Bytes: memoryFrame},
			})
		}
	}
	return f
}
