// Package control is the local control API of the daemons: HTTP and JSON on a unix socket. A
// handler is a function from a request to a reply. Its error is sent as {"error": …} with a status,
// and the client returns it as an error again. HandleProfile registers the request for a CPU
// profile, which the daemons of hosts and of the switch answer.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/unixsocket"
)

// PathAlive is the path of a GET that every Server answers at once, with an empty body. It shows that
// the process runs and does not hang, whatever its handlers wait for.
const PathAlive = "/alive"

// maxBody is the largest size of a request body in bytes.
const maxBody = 1 << 20

// Errors of a client that gets no answer.
var (
	// ErrNotRunning means that no process serves the socket.
	ErrNotRunning = errors.New("not running")
	// ErrPrivilege means that the caller has no permission to use the socket.
	ErrPrivilege = errors.New("needs root: run the command with sudo")
	// ErrSilent means that the process that serves the socket has not answered by the deadline.
	ErrSilent = errors.New("does not answer")
)

// deadlineHeader holds the time until which the caller waits, in nanoseconds of Unix time. A daemon
// that was stopped for a while finds requests whose callers have already given up, and must not
// execute them.
const deadlineHeader = "Rdmalab-Deadline"

// late reports whether the caller of r no longer waits.
func late(r *http.Request) bool {
	ns, err := strconv.ParseInt(r.Header.Get(deadlineHeader), 10, 64)
	return err == nil && time.Now().UnixNano() > ns
}

// Error is an error that the daemon returned.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"error"`
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an Error with an HTTP status, which a handler returns to the client.
func Errorf(status int, format string, args ...any) error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// Mux routes patterns like "METHOD /path", as http.ServeMux does.
type Mux struct {
	http.ServeMux
	// Gate holds all requests back while it is shut; nil means that none is ever held back.
	Gate *Gate
	// Fatal makes a handler that panics end the process. Otherwise net/http keeps it alive, also if the
	// handler has left locks behind.
	Fatal bool
}

// Handle registers f for a pattern like "POST /faults/{id}". In is decoded from the JSON body, in
// which unknown fields are an error; an empty body leaves the zero value. The result is sent as
// JSON.
func Handle[In, Out any](m *Mux, pattern string, f func(r *http.Request, in In) (Out, error)) {
	m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		in, err := decode[In](w, r)
		if err != nil {
			WriteError(w, err)
			return
		}
		out, err := f(r, in)
		if err != nil {
			WriteError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // fails if the client has gone
	})
}

// decode decodes a request body: one JSON value without unknown fields, or nothing.
func decode[In any](w http.ResponseWriter, r *http.Request) (in In, err error) {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err = dec.Decode(&in); errors.Is(err, io.EOF) {
		return in, nil
	}
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the JSON value")
		}
	}
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return in, Errorf(http.StatusRequestEntityTooLarge, "request body: more than %d bytes", maxBody)
	case err != nil:
		return in, Errorf(http.StatusBadRequest, "request body: %v", err)
	}
	return in, nil
}

// WriteError answers a request with an error: with the status of an Error, or 500 for any other.
func WriteError(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Status: http.StatusInternalServerError, Message: err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(e) // fails if the client has gone
}

// Limits of a server.
const (
	// maxSocketPath is the length of the longest path that fits into a socket address.
	maxSocketPath = 107
	// headerWait is how long a client may take to send the header of a request.
	headerWait = 5 * time.Second
	// closeWait is how long Close waits for handlers whose context it has cancelled.
	closeWait = 5 * time.Second
)

// Server serves a Mux on a unix socket.
type Server struct {
	srv  *http.Server
	done chan struct{} // closed when the accept loop has ended
	once sync.Once
	err  error // result of Close

	mu      sync.Mutex // guards closing, so that no handler is added to active after Wait was called
	closing bool
	active  sync.WaitGroup // counts the running handlers
}

// begin counts a handler in active. It returns false if the server is closing.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.active.Add(1)
	return true
}

// Serve listens on path, with mode 0600, and serves in a goroutine until Close. It replaces a
// socket file that no process serves.
func Serve(path string, m *Mux) (*Server, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("control socket %s: the path is longer than %d bytes: choose shorter names", path, maxSocketPath)
	}
	l, err := unixsocket.Listen("unix", path, 0)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &Server{done: make(chan struct{})}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			WriteError(w, Errorf(http.StatusServiceUnavailable, "the daemon is ending"))
			return
		}
		defer s.active.Done()
		if m.Fatal {
			defer endIfPanics()
		}
		m.Gate.wait(r.Context())
		if late(r) {
			WriteError(w, Errorf(http.StatusRequestTimeout, "the request came after its deadline, and was not carried out"))
			return
		}
		if r.Method != http.MethodGet || r.URL.Path != PathAlive {
			m.ServeHTTP(w, r)
		}
	})
	s.srv = &http.Server{Handler: handler, ReadHeaderTimeout: headerWait}
	go func() {
		defer close(s.done)
		_ = s.srv.Serve(l) // always ErrServerClosed after Close
	}()
	return s, nil
}

// endIfPanics ends the process if the calling handler panics. It must be deferred.
func endIfPanics() {
	switch p := recover(); p {
	case nil:
	case http.ErrAbortHandler:
		panic(p) // net/http ends the request
	default:
		go panic(fmt.Sprintf("%v, in a handler:\n%s", p, debug.Stack())) // net/http recovers only in its own goroutine
		select {}
	}
}

// Close ends the server and its connections. It cancels the contexts of running requests and waits
// for the accept loop and the handlers. If a handler does not return within closeWait, Close
// returns an error. A second Close returns the same result.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		s.err = s.srv.Close()
		<-s.done
		ended := make(chan struct{})
		go func() { s.active.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(closeWait):
			s.err = errors.Join(s.err, fmt.Errorf("control server: a handler goes on %v after it was cancelled", closeWait))
		}
	})
	return s.err
}

// Client calls a daemon.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client for the socket at path. Each call makes a connection.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// ClientOf returns a client that calls the handlers of m in this process, in the goroutine of the
// caller.
func ClientOf(m *Mux) *Client { return &Client{http: http.Client{Transport: direct{m}}} }

// direct is an http.RoundTripper that calls a handler in this process.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	a := &reply{Response: http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r}}
	d.handler.ServeHTTP(a, r)
	a.Status, a.Body = http.StatusText(a.StatusCode), io.NopCloser(&a.body)
	return &a.Response, nil
}

// reply is an http.ResponseWriter that stores the response in memory.
type reply struct {
	http.Response
	body bytes.Buffer
}

func (a *reply) Header() http.Header         { return a.Response.Header }
func (a *reply) WriteHeader(status int)      { a.StatusCode = status }
func (a *reply) Write(b []byte) (int, error) { return a.body.Write(b) }

// Call sends in as JSON and decodes the answer into out. If in is nil, the request has no body; if
// out is nil, the answer is discarded.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	body, err := c.Stream(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, body)
		return err
	}
	return json.NewDecoder(body).Decode(out)
}

// Stream is Call for an answer of unknown length, which the caller must close. The end of ctx ends
// the answer.
func (c *Client) Stream(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://rdmalab"+path, body)
	if err != nil {
		return nil, err
	}
	if until, ok := ctx.Deadline(); ok {
		req.Header.Set(deadlineHeader, strconv.FormatInt(until.UnixNano(), 10))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		e := &Error{Status: resp.StatusCode}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // a partial text is better than none
		if json.Unmarshal(text, e) != nil || e.Message == "" {
			e.Message = resp.Status + " " + strings.TrimSpace(string(text))
		}
		return nil, e
	}
	return resp.Body, nil
}

// explain returns an error that says why the daemon has not answered.
func (c *Client) explain(err error) error {
	var op *net.OpError
	var call *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w (%w)", c.path, ErrSilent, context.DeadlineExceeded)
	case errors.As(err, &op) && op.Op == "dial" && errors.Is(op.Err, os.ErrPermission):
		return fmt.Errorf("%w (%s: %w)", ErrPrivilege, c.path, op.Err)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%s: %w (%w)", c.path, ErrNotRunning, op.Err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%s: %w", c.path, ErrCutOff)
	case errors.As(err, &call): // its text is about HTTP, of which the caller knows nothing
		return fmt.Errorf("%s: %w", c.path, call.Err)
	}
	return err
}
