package store

import (
	"errors"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Control requests that every store answers, as last parts of a Path. All are POST.
const (
	PathStart   = "start"   // the store's own body and answer
	PathStop    = "stop"    // no body, no answer
	PathOp      = "op"      // OpRequest: Answer; answered by the daemon
	PathHistory = "history" // HistoryRequest: Verdict; answered by the daemon
)

// Path is the path of a control request of a store.
func (s *Store) Path(request string) string { return "/store/" + s.Name + "/" + request }

// ClientOptions say how clients are opened.
type ClientOptions struct {
	// Server is the name of the host that runs the store's server; "" if the store has none.
	Server string `json:"server,omitempty"`
	// MaxValue is the longest value that the clients will read or write, in bytes; 0: the longest
	// possible value.
	MaxValue int `json:"maxValue,omitempty"`
	// Share is how many clients share a queue pair to each memory server; 0 or 1: each has its own.
	Share int `json:"share,omitempty"`
	// Cache says whose the location cache is: OfProcess (also ""), one for all clients that a request
	// opens on a host, or OfClient, each client has its own.
	Cache string `json:"cache,omitempty"`
	// Reporter says how appends are reported to the store's server. OfProcess: all clients that a
	// request opens on a host report together. OfClient, also "": each client reports its own.
	Reporter string `json:"reporter,omitempty"`
}

// Values of ClientOptions.Cache and ClientOptions.Reporter.
const (
	OfProcess = "process"
	OfClient  = "client"
)

// OpRequest asks a host to do one operation. The host opens a client for it, and closes the client
// afterwards.
type OpRequest struct {
	ClientOptions
	// Op is get, put, insert, delete, upsert or scan; the last two only if the store has them.
	Op    string `json:"op"`
	Key   uint64 `json:"key"`
	Value []byte `json:"value,omitempty"`
	// N is how many records a scan may return; 1 to 10,000.
	N int `json:"n,omitempty"`
	// Patience is the time limit of the operation once the client has connected; 0: Patience.
	Patience time.Duration `json:"patienceNs,omitempty"`
}

// Answer is the result of an operation.
type Answer struct {
	Value   []byte   `json:"value,omitempty"`
	Records []Record `json:"records,omitempty"`
	// Cost says what the operation took on the network, in words.
	Cost string        `json:"cost"`
	Took time.Duration `json:"tookNs"`
}

// Record is a record that a scan returned.
type Record struct {
	Key   uint64 `json:"key"`
	Value []byte `json:"value"`
}

// HistoryRequest asks a host to run clients that work on the same few keys, and to check the
// history of their operations.
type HistoryRequest struct {
	ClientOptions
	// Clients on this host, Rounds operations of each client, on Keys keys, of which Base is the
	// first.
	Clients int    `json:"clients"`
	Rounds  int    `json:"rounds"`
	Keys    int    `json:"keys"`
	Base    uint64 `json:"base"`
	// Value is the size of values in bytes; 0: the store's longest value.
	Value int    `json:"value,omitempty"`
	Seed  uint64 `json:"seed"`
	// Loss: a memory server may crash meanwhile, so a key may be reported as lost.
	Loss bool `json:"loss,omitempty"`
}

// Verdict is the result of the check of a history.
type Verdict struct {
	Operations int `json:"operations"`
	// Unknown counts operations that ended without an answer. Lost counts those that found the
	// value gone with its memory server.
	Unknown int           `json:"unknown"`
	Lost    int           `json:"lost"`
	Took    time.Duration `json:"tookNs"`
	// Linearizable says that one order of all operations on each key explains every answer.
	// Otherwise Why says which answers it does not explain.
	Linearizable bool   `json:"linearizable"`
	Why          string `json:"why,omitempty"`
}

// HTTPError gives an error of a store the HTTP status of its kind. nil, and errors that have a
// status, stay as they are.
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
