package store

import (
	"errors"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The last parts of the paths of the control requests that every store answers. All are POST.
const (
	PathStart   = "start"   // each store has its own body and answer
	PathStop    = "stop"    // no body, no answer
	PathOp      = "op"      // body OpRequest, answer Answer; one handler for all stores
	PathHistory = "history" // body HistoryRequest, answer Verdict; one handler for all stores
	// PathHistoryEnd ends the clients of the histories that are being made on the host; each is checked then as far as it is.
	// No body, no answer; one handler for all stores.
	PathHistoryEnd = PathHistory + "/end"
)

// Paths is the prefix of the paths of all stores' control requests.
const Paths = "/store/"

// Path returns the path of a control request of the store.
func (s *Store) Path(request string) string { return Paths + s.Name + "/" + request }

// ClientOptions say how clients are opened.
type ClientOptions struct {
	// Server is the name of the host that runs the store's server; "" if the store has none.
	Server string `json:"server,omitempty"`
	// MaxValue is the length in bytes of the longest value that the clients will read or write; 0
	// means the longest value that the store can store.
	MaxValue int `json:"maxValue,omitempty"`
	// Share is how many clients share a queue pair to each memory server; 0 or 1 means that each
	// client has a queue pair of its own.
	Share int `json:"share,omitempty"`
	// Cache says how clients cache locations. With OfProcess, also with "", all clients that a
	// request opens on a host share a cache. With OfClient, each client has its own cache.
	Cache string `json:"cache,omitempty"`
	// Reporter says how clients report appends to the store's server. With OfProcess, all clients
	// that a request opens on a host report together. With OfClient, also with "", each client
	// reports its own appends.
	Reporter string `json:"reporter,omitempty"`
	// Mode is ModeFast, also "", or ModePublished. With ModePublished, the clients make the same
	// requests as the clients of the published system.
	Mode string `json:"mode,omitempty"`
	// Gets says how clients of nictable get values: GetsNIC, also "", GetsReads or GetsServer.
	Gets string `json:"gets,omitempty"`
}

// Values of ClientOptions.Gets.
const (
	GetsNIC    = "nic"    // the server's NIC answers
	GetsReads  = "reads"  // the client READs slots and item
	GetsServer = "server" // the server's process answers
)

// Values of ClientOptions.Mode.
const (
	ModeFast      = "fast"
	ModePublished = "published"
)

// Values of ClientOptions.Cache and ClientOptions.Reporter.
const (
	OfProcess = "process"
	OfClient  = "client"
)

// OpRequest asks a host to execute one operation. The host opens a client for it, and closes the
// client afterwards.
type OpRequest struct {
	ClientOptions
	// Op is get, put, insert, delete, upsert or scan. Only some stores have upsert and scan.
	Op    string `json:"op"`
	Key   uint64 `json:"key"`
	Value []byte `json:"value,omitempty"`
	// N is how many records a scan may return, from 1 to 10,000.
	N int `json:"n,omitempty"`
	// Patience is the time limit of the operation after the client has connected; 0 means the
	// constant Patience.
	Patience time.Duration `json:"patienceNs,omitempty"`
}

// Answer is the result of an operation.
type Answer struct {
	Value   []byte   `json:"value,omitempty"`
	Records []Record `json:"records,omitempty"`
	// Cost says in words how the operation has used the network.
	Cost string        `json:"cost"`
	Took time.Duration `json:"tookNs"`
}

// Record is a record that a scan returned.
type Record struct {
	Key   uint64 `json:"key"`
	Value []byte `json:"value"`
}

// HistoryRequest asks a host to run clients that work on the same few keys, and to check their
// history.
type HistoryRequest struct {
	ClientOptions
	// Clients is the number of clients on this host. Rounds is the number of operations of each
	// client. They use Keys keys from Base on.
	Clients int    `json:"clients"`
	Rounds  int    `json:"rounds"`
	Keys    int    `json:"keys"`
	Base    uint64 `json:"base"`
	// Every is the pause of each client between two operations, at most MaxEvery.
	Every time.Duration `json:"everyNs,omitempty"`
	// Value is the length of values in bytes; 0 means the length of the store's longest value.
	Value int    `json:"value,omitempty"`
	Seed  uint64 `json:"seed"`
	// Loss is true if a memory server may crash during the run. Then operations may report a key as
	// lost.
	Loss bool `json:"loss,omitempty"`
}

// MaxEvery bounds HistoryRequest.Every.
const MaxEvery = time.Second

// Verdict is the result of a check of a history.
type Verdict struct {
	Operations int `json:"operations"`
	// Unknown counts operations that ended without an answer. Lost counts operations that found the
	// key's value lost with its memory server.
	Unknown int           `json:"unknown"`
	Lost    int           `json:"lost"`
	Took    time.Duration `json:"tookNs"`
	// Linearizable is true if one order of all operations on each key explains every answer. If it
	// is false, Why says which answers no order explains.
	Linearizable bool   `json:"linearizable"`
	Why          string `json:"why,omitempty"`
	// Undecided is true if the search for an order reached its limit. Then Linearizable is false.
	Undecided bool `json:"undecided,omitempty"`
	// OnlyLost is true if the history is not linearizable, but would be if memory servers had lost
	// their memory during the check.
	OnlyLost bool `json:"onlyLost,omitempty"`
}

// HTTPError gives an error of a store the HTTP status that fits its kind. It does not change nil,
// nor an error that already has a status.
func HTTPError(err error) error {
	status := http.StatusBadGateway
	var own *control.Error
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.Is(err, kv.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, kv.ErrExists):
		status = http.StatusConflict
	case errors.Is(err, kv.ErrTooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, kv.ErrLost):
		status = http.StatusGone
	case errors.Is(err, kv.ErrTimeout):
		status = http.StatusGatewayTimeout
	}
	return control.Errorf(status, "%v", err)
}
