package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/export"
	"github.com/rdmalab/rdmalab/topo/top/live"
)

// maxRecordings bounds the requests that wait for a recording or a drawing at a time.
const maxRecordings = 4

//go:embed page
var files embed.FS

// OpenAPI describes the API; a test compares it with the routes.
//
//go:embed openapi.json
var OpenAPI []byte

// Config describes a Site.
type Config struct {
	Rack    string
	Version string
	// Program is the path of this program, and RackFlag the flag by which its commands find the rack; it
	// is empty if they need none.
	Program  string
	RackFlag []string
	// Token allows requests to change the rack; an empty one none.
	Token string
	// Hosts are names by which browsers may address the server, beside addresses and localhost.
	Hosts []string
	Log   *slog.Logger

	// Read, Call and Stream ask the rack; nil means the real ones. Only tests set them.
	Read   func(ctx context.Context, name string) (*live.Reading, error)
	Call   func(ctx context.Context, node, path string, out any) error
	Stream func(ctx context.Context, path string) (io.ReadCloser, error)
}

// Site is the page of a rack with its API. It is an http.Handler.
type Site struct {
	http.Handler
	cfg      Config
	source   *live.Source
	hub      *hub
	daemons  *daemons
	runner   *runner
	recorder *recorder
	drawing  chan struct{}
}

// route is a pattern of net/http with its handler.
type route struct {
	pattern string
	handler http.HandlerFunc
}

// New returns a Site. The caller closes it.
func New(cfg Config) *Site {
	client := func(node string) *control.Client { return control.NewClient(rackfile.PathsOf(cfg.Rack).Socket(node)) }
	if cfg.Call == nil {
		cfg.Call = func(ctx context.Context, node, path string, out any) error {
			return client(node).Call(ctx, http.MethodGet, path, nil, out)
		}
	}
	if cfg.Stream == nil {
		cfg.Stream = func(ctx context.Context, path string) (io.ReadCloser, error) {
			return client(firstSwitch(rackfile.PathsOf(cfg.Rack))).Stream(ctx, http.MethodGet, path, nil)
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Site{cfg: cfg, source: &live.Source{Name: cfg.Rack, MaxAge: fresh, Read: cfg.Read}}
	s.hub = newHub(s.source, func(r *Rack) { r.Control, r.Version = cfg.Token != "", cfg.Version })
	s.daemons = &daemons{call: cfg.Call, busy: make(chan struct{}, maxAsking)}
	s.runner = &runner{program: cfg.Program, flags: cfg.RackFlag, log: cfg.Log, turn: make(chan struct{}, 1)}
	s.recorder = &recorder{stream: cfg.Stream, turn: make(chan struct{}, 1)}
	s.drawing = make(chan struct{}, maxRecordings)
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.HandleFunc(r.pattern, r.handler)
	}
	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux.Handle("GET /", http.FileServerFS(page))
	racks := func() []string { return []string{cfg.Rack} }
	mux.Handle("GET /metrics", export.New(export.Config{Version: cfg.Version, Racks: racks, Read: cfg.Read}).Handler())
	s.Handler = &guard{mux, cfg.Hosts}
	return s
}

// Close ends what runs in the background. Streams of events end with the context of their requests.
func (s *Site) Close() { s.hub.close() }

// routes are those of the API, as openapi.json describes them.
func (s *Site) routes() []route {
	return []route{
		{"GET /api/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) { answerText(w, OpenAPI) }},
		{"GET /api/v1/rack", s.serveRack},
		{"GET /api/v1/events", s.hub.serveEvents},
		{"GET /api/v1/history", read(func(*http.Request) (any, error) { return s.hub.history(), nil })},
		{"GET /api/v1/nodes/{node}/counters", read(s.counters)},
		{"GET /api/v1/nodes/{node}/{kind}", read(s.objects)},
		{"POST /api/v1/ladders", s.serveRecord},
		{"GET /api/v1/ladders/{id}", bounded(s.drawing, s.serveLadder)},
		{"POST /api/v1/faults", s.change(s.inject)},
		{"DELETE /api/v1/faults", s.change(s.heal)},
		{"DELETE /api/v1/faults/{id}", s.change(s.heal)},
		{"POST /api/v1/nodes/{node}/actions", s.change(s.act)},
		{"POST /api/v1/links/{host}", s.change(s.link)},
	}
}

func (s *Site) serveRack(w http.ResponseWriter, r *http.Request) {
	state, text, err := s.hub.now(r.Context())
	switch {
	case err == nil && r.URL.Query().Get("detail") == "true":
		answer(w, state, nil)
	case err != nil:
		control.WriteError(w, err)
	default:
		answerText(w, text)
	}
}

// serveRecord records packets. It changes nothing of the rack, so it needs no token.
func (s *Site) serveRecord(w http.ResponseWriter, r *http.Request) {
	bounded(s.drawing, func(w http.ResponseWriter, r *http.Request) {
		var q RecordRequest
		err := decode(w, r, &q)
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the end of the client's connection is noticed without it
		var rec *Recording
		if err == nil {
			rec, err = s.recorder.record(r.Context(), &q, maxRead, nil)
		}
		answer(w, rec, err)
	})(w, r)
}

// read is a handler of a GET whose answer is JSON.
func read(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		answer(w, v, err)
	}
}

// change is a handler of a request that changes the rack.
func (s *Site) change(f func(w http.ResponseWriter, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := mayChange(r, s.cfg.Token); err != nil {
			control.WriteError(w, err)
			return
		}
		// A command or a recording may take longer than an answer usually does.
		end := time.Now().Add(commandWait + writeWait)
		rc := http.NewResponseController(w)
		if err := errors.Join(rc.SetReadDeadline(end), rc.SetWriteDeadline(end)); err != nil {
			s.cfg.Log.Debug("no deadlines", "error", err)
		}
		v, err := f(w, r)
		answer(w, v, err)
	}
}

// bounded refuses requests beyond the places of a channel.
func bounded(places chan struct{}, f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			f(w, r)
		default:
			control.WriteError(w, control.Errorf(http.StatusServiceUnavailable, "too many requests of this kind at a time"))
		}
	}
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		control.WriteError(w, err)
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		control.WriteError(w, err)
		return
	}
	answerText(w, text)
}

func answerText(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // fails if the client has gone
}
