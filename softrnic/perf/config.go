package perf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Names of the tests that Run executes.
const (
	WriteBW   = "write_bw"
	ReadBW    = "read_bw"
	SendBW    = "send_bw"
	AtomicBW  = "atomic_bw"
	WriteLat  = "write_lat"
	ReadLat   = "read_lat"
	SendLat   = "send_lat"
	AtomicLat = "atomic_lat"
	Verify    = "verify"
	Soak      = "soak"
	// Contend: many clients do CAS on one word of the memory that all clients of a host share.
	Contend = "contend"
	// Locks: many clients take and release one lock.
	Locks = "locks"
)

// Tests returns all tests in the order of a help text.
func Tests() []string {
	return []string{WriteBW, ReadBW, SendBW, AtomicBW, WriteLat, ReadLat, SendLat, AtomicLat, Contend, Locks, Verify, Soak}
}

// Limits of a Config.
const (
	MaxSize  = 64 << 20 // bytes of a message
	MaxIters = 100_000_000
	MaxDepth = 4096
	// MaxReceives is the largest number of receives that the server of SEND tests posts to a queue
	// pair. It is the default depth of a work queue of the NIC.
	MaxReceives = 4 * MaxDepth
	// leastReceives is the least number of receives by default, perftest's: some 100 µs of 8-byte
	// messages, in which a server that sleeps is woken.
	leastReceives = 512
	maxCode       = 31 // largest code of an ACK timeout
	// maxSpan is the longest run of locks.
	maxSpan = time.Hour
	// maxBuffer is the largest memory of one side in bytes.
	maxBuffer = 256 << 20
)

// Config is one run of one test. It is sent as JSON to the host that runs it.
type Config struct {
	// Test is the name of a test: one of Tests.
	Test string `json:"test"`
	// To is the address or name of the peer. The caller resolves it; package perf only prints it.
	To string `json:"to,omitempty"`
	// Service is the service to connect to; "" means "perf", and "memory" for the tests verify,
	// contend and locks.
	Service string `json:"service,omitempty"`
	Queues
	OneWord
	// Type is cas or faa for atomic tests; "" means faa.
	Type string `json:"type,omitempty"`
	// Size is the size of a message in bytes; 0 means 64 KiB for bandwidth (4 KiB over ud) and soak,
	// 16 KiB for verify, 8 for latency and atomics.
	Size int `json:"size,omitempty"`
	// Iters is the number of messages; 0 means 5000 for bandwidth, 1000 for latency, 2000 of each
	// kind for soak, 20000 for contend.
	Iters int `json:"iters,omitempty"`
	// Atomics is the number of CAS and FAA of a soak together; 0 means 20000. Negative: none.
	Atomics int `json:"atomics,omitempty"`
	// Depth is the largest number of messages in flight; 0 means 128 (16 for atomics and soak). A
	// test uses less if Iters is smaller, or if the messages do not fit into memory. Latency tests,
	// contend and locks always use 1.
	Depth int `json:"depth,omitempty"`
	// SignalEvery is n if one of n messages is signalled; 0 means a quarter of Depth, but at most 16.
	// Every message is signalled if SignalEvery is larger than Depth, if Verify is set, and in latency
	// tests.
	SignalEvery int `json:"signalEvery,omitempty"`
	// Inline is the size in bytes up to which messages are sent inline.
	Inline int `json:"inline,omitempty"`
	// Verify makes the test compare every byte of every message with the expected one.
	Verify bool `json:"verify,omitempty"`
	Path
	// RecvSlack is the number of receives that the server of SEND tests keeps posted on a queue
	// pair. If the client has more messages in flight, the server answers with RNR NAKs. 0 means
	// leastReceives, or one more than one and a half times Depth if that is more.
	RecvSlack int `json:"recvSlack,omitempty"`
	// Seed determines the pattern and the order of atomics; 0 means 1.
	Seed uint64 `json:"seed,omitempty"`
	// Patience is how long to wait for one completion; 0 means 30 s. Normally the retry limits of
	// the queue pair end a run earlier, with a status that names the reason.
	Patience time.Duration `json:"patience,omitempty"`
	Hooks
}

// Queues says which queue pairs SEND tests use.
type Queues struct {
	// Conn is the transport service of SEND tests: rc, uc or ud; "" means rc.
	Conn string `json:"conn,omitempty"`
	// QPs is the number of queue pairs that a SEND bandwidth test uses in turn; 0 means 1.
	QPs int `json:"qps,omitempty"`
	// SRQ makes the server of a SEND test post its receives to a shared receive queue.
	SRQ bool `json:"srq,omitempty"`
}

// OneWord has the fields of the tests contend and locks, in which clients share one word.
type OneWord struct {
	// Clients is the number of clients. Each is a queue pair with one operation in flight. 0 means 1.
	Clients int `json:"clients,omitempty"`
	// Device is true if the word is in device memory of the server. Span is how long the test locks
	// runs; 0 means 1 s. Bandwidth and latency tests that have a Span run for this time, in place of a
	// number of messages. Bits is true if the lock word is 0 or 1 and a CAS releases the lock.
	Device bool          `json:"device,omitempty"`
	Bits   bool          `json:"bits,omitempty"`
	Span   time.Duration `json:"span,omitempty"`
	// Held, if not "", names a set of runs on several hosts. Each run keeps the connections of its
	// clients until it is released: the clients of one run may need the connections of another.
	Held string `json:"held,omitempty"`
}

// Path has the parameters of a connection.
type Path struct {
	// MTU is the largest path MTU in bytes; 0 means the largest that the link allows, at most 4096.
	MTU int `json:"mtu,omitempty"`
	// Timeout, RetryCount, RNRRetry and MinRNRTimer are the fields of rdmacm.Params; 0 means the
	// default there.
	Timeout     uint8 `json:"timeout,omitempty"`
	RetryCount  uint8 `json:"retryCount,omitempty"`
	RNRRetry    uint8 `json:"rnrRetry,omitempty"`
	MinRNRTimer uint8 `json:"minRnrTimer,omitempty"`
	// RdAtomic is how many READs and atomics may be in flight; 0 means 16.
	RdAtomic int `json:"rdAtomic,omitempty"`
}

// Hooks are functions of the process that runs a test. They are not part of the JSON.
type Hooks struct {
	// Counters returns the NIC's counters. The result contains by how much they grew during the run.
	// If Counters is nil, the result has no counters.
	Counters func() metrics.NIC `json:"-"`
	// Cancelled is called every 100 ms while the run waits for completions. In the tests contend
	// and locks it is called before each CAS instead, except the first of each client. If it
	// returns true, the run ends with ErrCancelled.
	Cancelled func() bool `json:"-"`
	// Hold is called in the tests contend and locks when all clients have ended. Their connections
	// are open until it returns. An error makes the run fail; nil means that there is no Hold.
	Hold func() error `json:"-"`
}

// connsMeant and atomicsMeant have the words of perftest and of opcodes.
var (
	connsMeant   = map[string]string{"reliable": ConnRC, "unreliable": ConnUC, "datagram": ConnUD, "srd": ConnUD}
	atomicsMeant = map[string]string{"cmp_and_swap": "cas", "cmp_swap": "cas", "compare_and_swap": "cas", "fetch_and_add": "faa", "fetch_add": "faa", "add": "faa"}
)

// Validate returns an error for the first field that is wrong; the error says what is allowed.
func (c *Config) Validate() error {
	bad := func(format string, args ...any) error {
		return &verbs.OpError{Op: "perf " + c.Test, Detail: fmt.Sprintf(format, args...), Err: verbs.ErrInvalid}
	}
	switch {
	case !slices.Contains(Tests(), c.Test):
		return bad("unknown test %.40q: %swant one of %s", c.Test, nearest.Meant(c.Test, Tests()), strings.Join(Tests(), ", "))
	case c.Type != "" && c.Type != "cas" && c.Type != "faa":
		return bad("type %.40q: %swant cas or faa", c.Type, nearest.Meant(c.Type, []string{"cas", "faa"}, atomicsMeant))
	case c.atomic() && c.Size != 0 && c.Size != atomicSize:
		return bad("size %d: atomics have 8 bytes", c.Size)
	case c.Size < 0 || c.Size > MaxSize:
		return bad("size %d: want 1 to %d bytes", c.Size, MaxSize)
	case c.Iters < 0 || c.Iters > MaxIters:
		return bad("iters %d: want 1 to %d", c.Iters, MaxIters)
	case c.Atomics > MaxIters:
		return bad("atomics %d: want 1 to %d", c.Atomics, MaxIters)
	case c.Depth < 0 || c.Depth > MaxDepth || c.RecvSlack < 0 || c.RecvSlack > MaxReceives:
		return bad("depth %d, receives %d: want 1 to %d and 1 to %d", c.Depth, c.RecvSlack, MaxDepth, MaxReceives)
	case c.SignalEvery < 0 || c.Inline < 0 || c.RdAtomic < 0 || c.Patience < 0:
		return bad("signalEvery, inline, rdAtomic and patience must not be negative")
	case c.Clients < 0 || c.Clients > MaxClients || c.Clients > 1 && !c.oneWord():
		return bad("%d clients: want 1 to %d, for %s and %s", c.Clients, MaxClients, Contend, Locks)
	case c.Bits && c.Test != Locks:
		return bad("a lock that is a bit is for %s", Locks)
	case c.Span < 0 || c.Span > maxSpan:
		return bad("it cannot run for %v: want at most %v", c.Span, maxSpan)
	case c.Span > 0 && c.Test != Locks && !c.timed():
		return bad("only bandwidth and latency tests without queue pairs of their own run for a time; give the number of messages")
	case c.Span > 0 && c.Test == WriteBW && c.Verify:
		return bad("it cannot verify bytes and run for a time: give the number of messages")
	case c.Device && !c.oneWord():
		return bad("memory on the NIC is for %s and %s", Contend, Locks)
	case c.Held != "" && !c.oneWord():
		return bad("held connections are for %s and %s", Contend, Locks)
	case c.Timeout > maxCode:
		return bad("timeout %d: want a code from 1 to %d", c.Timeout, maxCode)
	case c.MTU != 0 && !slices.Contains([]int{256, 512, 1024, 2048, 4096}, c.MTU):
		return bad("mtu %d: a path MTU is 256, 512, 1024, 2048 or 4096%s", c.MTU, ofEthernet(c.MTU))
	}
	if err := c.checkLanes(); err != nil {
		return bad("%v", err)
	}
	return nil
}

// ofEthernet says which path MTU fits into an MTU of Ethernet; "" if it fits into none.
func ofEthernet(mtu int) string {
	const headers = 104 // the longest headers of a packet over IPv6, with its ICRC
	for _, m := range []int{4096, 2048, 1024} {
		if mtu >= m+headers {
			return fmt.Sprintf("; a link of %d holds %d", mtu, m)
		}
	}
	return ""
}

func (c Config) withDefaults() Config {
	lat := strings.HasSuffix(c.Test, "_lat")
	switch {
	case c.oneWord():
		if c.Test == Locks {
			c.Span = cmp.Or(c.Span, time.Second)
		}
		c.Size, c.Depth, c.Type = atomicSize, 1, "cas"
		c.Iters = cmp.Or(c.Iters, 20000)
	case c.atomic():
		c.Size = cmp.Or(c.Size, atomicSize)
		c.Depth = cmp.Or(c.Depth, 16)
	case lat:
		c.Size = cmp.Or(c.Size, 8)
	case c.Test == Verify:
		c.Size = cmp.Or(c.Size, 16<<10)
	case c.Conn == ConnUD:
		c.Size = cmp.Or(c.Size, 4096)
	case c.Test == Soak:
		c.Depth = cmp.Or(c.Depth, 16)
	}
	if c.Span > 0 && c.timed() {
		c.Iters = cmp.Or(c.Iters, MaxIters)
	}
	if lat {
		c.Depth, c.SignalEvery = 1, 1
		c.Iters = cmp.Or(c.Iters, 1000)
	}
	if c.Test == Soak {
		c.Iters = cmp.Or(c.Iters, 2000)
		c.Atomics = cmp.Or(c.Atomics, 20000)
	}
	c.Size = cmp.Or(c.Size, 64<<10)
	c.Iters = cmp.Or(c.Iters, 5000)
	c.Depth = cmp.Or(c.Depth, 128)
	c.QPs = cmp.Or(c.QPs, 1)
	c.Clients = cmp.Or(c.Clients, 1)
	c.Conn = cmp.Or(c.Conn, ConnRC)
	c.Depth = max(1, min(c.Depth, maxBuffer/4/c.Size/c.QPs, c.Iters))
	if c.Verify || c.SignalEvery > c.Depth {
		c.SignalEvery = 1
	}
	c.SignalEvery = cmp.Or(c.SignalEvery, max(1, min(16, c.Depth/4)))
	c.RecvSlack = cmp.Or(c.RecvSlack, max(leastReceives, c.Depth+c.Depth/2+1))
	c.RdAtomic = cmp.Or(c.RdAtomic, 16)
	c.Type = cmp.Or(c.Type, "faa")
	if c.Service == "" {
		c.Service = PerfService
		if c.Test == Verify || c.oneWord() {
			c.Service = memservice.Service
		}
	}
	c.Seed = cmp.Or(c.Seed, 1)
	if _, ok := c.lanes(); ok {
		c.Seed &= 1<<32 - 1 // a test with lanes uses only the low 32 bits of the seed
	}
	c.Patience = cmp.Or(c.Patience, 30*time.Second)
	return c
}

// OneSided reports whether the test needs only the NIC of its peer, so that the memory service is
// enough.
func (c *Config) OneSided() bool {
	return slices.Contains([]string{WriteBW, ReadBW, AtomicBW, WriteLat, ReadLat, AtomicLat, Contend, Locks, Verify}, c.Test)
}

// timed reports whether the test can run for a time instead of a number of messages: a bandwidth or
// latency test whose messages go over the connection itself.
func (c *Config) timed() bool {
	l := lanes{cmp.Or(c.Conn, ConnRC), c.QPs, c.SRQ}
	return (strings.HasSuffix(c.Test, "_bw") || strings.HasSuffix(c.Test, "_lat")) && l.kind == ConnRC && l.n <= 1 && !l.shared
}

// oneWord reports whether many clients share one word in the test.
func (c *Config) oneWord() bool { return c.Test == Contend || c.Test == Locks }

func (c *Config) atomic() bool { return c.Test == AtomicBW || c.Test == AtomicLat }

func (c *Path) params() rdmacm.Params {
	return rdmacm.Params{
		PathMTU: verbs.MTU(c.MTU), RdAtomic: c.RdAtomic, Timeout: c.Timeout,
		RetryCount: c.RetryCount, RNRRetry: c.RNRRetry, MinRNRTimer: c.MinRNRTimer,
	}
}
