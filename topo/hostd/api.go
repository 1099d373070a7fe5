package hostd

import (
	"time"

	onermahost "github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store"
)

// Paths of the control API. The comment of a path has the HTTP method, the type of the request if
// there is one, and after the colon the type of the answer. control.HandleProfile adds one more
// path, and stores.routes adds those of the stores.
const (
	PathStatus   = "/status"    // GET: Status
	PathCounters = "/counters"  // GET: Counters
	PathRack     = "/rack"      // POST: Status. The host reads the rack's description again.
	PathNIC      = "/nic"       // POST NICRequest: Status
	PathNICFault = "/nic/fault" // POST NICFault: NICFaultResult
	PathNICPanic = "/nic/panic" // POST: none. The NIC panics in its next step, perhaps before the answer is sent; for tests.
	// PathVerbsFaults is GET: []fault.VerbsStatus; POST fault.VerbsRule: fault.VerbsRule; DELETE:
	// VerbsHealed. DELETE of PathVerbsFaults/ID ends one rule.
	PathVerbsFaults = "/faults/verbs"
	PathCrashApp    = "/app/crash" // POST: Status
	PathStartApp    = "/app/start" // POST: Status
	// PathHangApp stops the services and jobs of the daemon, PathResumeApp lets them go on; both
	// are POST: Status. During the hang, the daemon refuses requests to a store, requests that begin
	// a job (such as PathPerf), and PathStartApp.
	PathHangApp   = "/app/hang"
	PathResumeApp = "/app/resume"
	PathQPs       = "/qps" // GET: Objects
	PathMRs       = "/mrs" // GET: Objects
	PathCQs       = "/cqs" // GET: Objects
	PathCMs       = "/cms" // GET: Objects
	// PathCongestion is GET: Congestion, and POST CongestionChange: Congestion.
	PathCongestion = "/congestion"
	PathTear       = "/tear"  // GET, POST Tear, DELETE: Tear
	PathTrace      = "/trace" // POST pathtrace.Request; DELETE: pathtrace.Trace
	// PathPerf is POST perf.Config: stream of perf.Event. Config.To is the name of a host, or an
	// address. If the run fails, the stream may have a Result before the error. The tests
	// perf.RawBW and perf.RawLat send plain frames; see package raw.
	PathPerf = "/perf"
	// PathRelease is POST ReleaseRequest. It ends the wait of runs of PathPerf that are held.
	PathRelease = "/perf/release"
	PathVerify  = "/verify" // POST VerifyRequest: stream of VerifyItem
	PathPeer    = "/peer"   // POST PeerRequest: stream of PeerEvent
	PathRead    = "/read"   // POST ReadRequest: ReadResult
	PathLoad    = "/load"   // POST perf.Load: perf.LoadResult
)

// States of a NIC and of an application.
const (
	StateUp      = "up"
	StateDown    = "down"
	StateFailed  = "failed" // the NIC's port is unusable, as when its interface is gone: restart the daemon
	StateRunning = "running"
	StateCrashed = "crashed"
	StateHung    = "hung"
)

// Status describes a host and its present work.
type Status struct {
	Name string        `json:"name"`
	Role rackfile.Role `json:"role"`
	PID  int           `json:"pid"`
	// Process has the goroutines and the heap of the daemon's process.
	Process metrics.Process `json:"process"`
	NIC     NICStatus       `json:"nic"`
	// OneRMA describes the NIC without connections; nil if the host has none.
	OneRMA *onermahost.Status `json:"onerma,omitempty"`
	// App is StateRunning, StateHung or StateCrashed.
	App      string   `json:"app"`
	Services []string `json:"services"`
	// Jobs lists the running jobs, such as tests, and clients of stores.
	Jobs    []string       `json:"jobs"`
	Objects engine.Objects `json:"objects"`
	QPs     []QPStatus     `json:"qps"`
	Regions []Region       `json:"regions"`
	Tear    *Tear          `json:"tear,omitempty"`
	// Clients describes the clients of stores that run on the host; nil means that there are none.
	Clients *ClientsStatus `json:"clients,omitempty"`
	// Stores lists the stores that are up on the host. For a store with a server, the server runs
	// on this host. For a store without one, the host's daemon has the store's configuration.
	Stores []store.Status `json:"stores,omitempty"`
	// Programs lists the processes that are attached to the NIC. Shared lists the shared memory
	// regions, which exist longer than these processes.
	Programs []serve.ClientStatus `json:"programs"`
	Shared   []serve.SharedStatus `json:"shared"`
	// Quotas lists the limits on the programs' use of the NIC, and how much they use now.
	Quotas []serve.QuotaStatus `json:"quotas"`
	// Refusals lists what programs were refused lately, oldest first.
	Refusals []serve.RefusalStatus `json:"refusals,omitempty"`
}

type NICStatus struct {
	// State is StateUp, StateDown or StateFailed.
	State string `json:"state"`
	// Error is why a NIC failed.
	Error string `json:"error,omitempty"`
	// Link reports whether the port has a carrier.
	Link      bool          `json:"link"`
	MAC       string        `json:"mac"`
	Addresses []string      `json:"addresses"`
	MTU       int           `json:"mtu"`
	Port      afpacket.Info `json:"port"`
	// The most important counters. PathCounters returns all of them.
	SentPkts    uint64 `json:"sentPkts"`
	RcvdPkts    uint64 `json:"rcvdPkts"`
	RetransPkts uint64 `json:"retransPkts"`
	RxDropped   uint64 `json:"rxDropped"`
	TxDropped   uint64 `json:"txDropped"`
}

type QPStatus struct {
	QPN   uint32 `json:"qpn"`
	Type  string `json:"type"` // RC, UC or UD
	State string `json:"state"`
	// Ring is true if the queue pair has a send ring, which executes a program.
	Ring       bool   `json:"ring,omitempty"`
	Peer       string `json:"peer,omitempty"`
	PeerQPN    uint32 `json:"peerQpn,omitempty"`
	MTU        int    `json:"mtu,omitempty"`
	SendPSN    uint32 `json:"sendPsn"`
	RecvPSN    uint32 `json:"recvPsn"`
	SendQueued int    `json:"sendQueued"`
	RecvQueued int    `json:"recvQueued"`
	// RetransPkts counts the packets that the queue pair retransmitted.
	RetransPkts uint64 `json:"retransPkts"`
}

// Region is memory that the host has registered for its peers.
type Region struct {
	Service string `json:"service"`
	Addr    uint64 `json:"addr"`
	RKey    uint32 `json:"rkey"`
	Length  int    `json:"length"`
}

// Counters holds the counters of the NIC, of its port, of what programs were refused, and of the 1RMA
// NIC if there is one, in this order.
type Counters struct {
	Name    string           `json:"name"`
	Samples []metrics.Sample `json:"samples"`
}

// NICRequest crashes or starts a NIC.
type NICRequest struct {
	// State is StateDown or StateUp.
	State string `json:"state"`
}

// Faults of a NIC.
const (
	FaultQPError   = "qp-error"   // queue pairs fail
	FaultStop      = "stop"       // FaultQPError for queue pairs whose send ring executes a program, and for no others
	FaultCQOverrun = "cq-overrun" // the completion queues of queue pairs overrun
	FaultUnplug    = "unplug"     // the NIC is gone, as after NICRequest with StateDown
)

// NICFault makes the NIC fail as hardware does, with the same asynchronous events and completions.
type NICFault struct {
	Kind string `json:"kind"`
	// QPN is the queue pair that fails; 0 means all queue pairs that the fault can hit, except those in
	// RESET or ERROR.
	QPN wire.QPN `json:"qpn,omitempty"`
}

// NICFaultResult lists the queue pairs that failed.
type NICFaultResult struct {
	QPNs []wire.QPN `json:"qpns"`
}

// Tear makes copies of memory torn: a copy of a WRITE's payload into memory, or of a READ's
// response out of it, pauses in the middle.
type Tear struct {
	// Probability is the probability that a copy is torn, from 0 to 1; 0 ends the fault.
	Probability float64 `json:"probability"`
	// Seed is the seed of the random choices; 0 means the rack's seed.
	Seed uint64 `json:"seed,omitempty"`
	// Pause bounds the random time between the two parts of a copy; 0 means 20 µs.
	Pause time.Duration `json:"pause,omitempty"`
	// For is how long the fault lasts; 0 means that it lasts until a request ends it.
	For time.Duration `json:"for,omitempty"`
}

// VerifyRequest checks the paths from this host to others, one after the other.
type VerifyRequest struct {
	// To lists the peers; empty: all memory hosts except this one.
	To []string `json:"to,omitempty"`
}

// VerifyItem is the result for one peer.
type VerifyItem struct {
	From  string `json:"from"`
	To    string `json:"to"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	// Result has the checks that were made. It is valid also if a check failed.
	Result perf.Result `json:"result"`
}
