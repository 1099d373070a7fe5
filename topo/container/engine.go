package container

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
	"regexp"
	"slices"
	"strings"
	"time"
)

// DefaultSocket is the path of the engine's socket if the environment names no other.
const DefaultSocket = "/var/run/docker.sock"

const (
	// callWait bounds one answer of the engine. A busy engine needs seconds to start a container.
	callWait = 60 * time.Second
	// pingWait bounds the answer to the first request, which only asks for the version.
	pingWait = 5 * time.Second
	// maxAnswer bounds how many bytes of one answer are read.
	maxAnswer = 16 << 20
)

// Engine is a container engine. Its methods may be called from several goroutines.
type Engine struct {
	socket  string
	version string // API version with a slash before it, like /v1.41
	http    *http.Client
}

// EngineError is an error that the container engine has returned.
type EngineError struct {
	Status  int
	Message string
}

func (e *EngineError) Error() string { return "engine: " + e.Message }

func (e *EngineError) Is(target error) bool {
	return target == ErrNotFound && e.Status == http.StatusNotFound
}

// except returns err, or nil if err is target.
func except(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// pardon returns err, or nil if the engine has answered with one of these HTTP statuses.
func pardon(err error, statuses ...int) error {
	var said *EngineError
	if errors.As(err, &said) && slices.Contains(statuses, said.Status) {
		return nil
	}
	return err
}

// SocketFromEnv returns the path of the engine's socket: the one in DOCKER_HOST, or the default. It
// returns an error if DOCKER_HOST names an engine on another machine, because its containers would
// not run here.
func SocketFromEnv() (string, error) {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		return DefaultSocket, nil
	}
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("DOCKER_HOST is %.60q: hosts of a rack must be containers of this machine; use unix:///path/of/the.sock", host)
	}
	return path, nil
}

var versionShape = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,4}$`)

// Connect connects to the engine behind a socket and asks for its version.
func Connect(ctx context.Context, socket string) (*Engine, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	e := &Engine{socket: socket, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
	asked, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	resp, err := e.do(asked, http.MethodGet, "/_ping", nil, "", nil)
	if asked.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w at %s: a process listens there and says nothing for %v; is it stopped?", ErrNoEngine, socket, pingWait)
	}
	if err != nil {
		return nil, err
	}
	v := resp.Header.Get("Api-Version")
	if err := resp.Body.Close(); err != nil || !versionShape.MatchString(v) {
		return nil, fmt.Errorf("%w at %s: it says version %.20q", ErrNoEngine, socket, v)
	}
	e.version = "/v" + v
	return e, nil
}

// do sends a request; kind is the content type of body. If the status of the answer reports a
// failure, the error is an *EngineError. Otherwise the caller closes the body of the answer.
func (e *Engine) do(ctx context.Context, method, path string, query url.Values, kind string, body io.Reader) (*http.Response, error) {
	u := "http://engine" + e.version + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, e.explain(err)
	}
	if resp.StatusCode < http.StatusMultipleChoices || resp.StatusCode == http.StatusNotModified {
		return resp, nil
	}
	defer resp.Body.Close() // an error of Close does not matter: the text of the body was read before
	fail := &EngineError{Status: resp.StatusCode, Message: resp.Status}
	var said struct {
		Message string `json:"message"`
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // an incomplete text is shown, too
	if json.Unmarshal(text, &said) == nil && said.Message != "" {
		fail.Message = said.Message
	}
	return nil, fail
}

// explain adds advice to the error of a request that got no answer.
func (e *Engine) explain(err error) error {
	var op *net.OpError
	var call *url.Error
	switch {
	case errors.As(err, &op) && op.Op == "dial" && errors.Is(op.Err, os.ErrPermission):
		return fmt.Errorf("%w: %s may be used by root only: run the command with sudo", ErrNoEngine, e.socket)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w at %s (%w): start docker, as `rdmalab doctor` says, or name the engine's socket in DOCKER_HOST", ErrNoEngine, e.socket, op.Err)
	case errors.As(err, &call):
		return fmt.Errorf("engine at %s: %w", e.socket, call.Err)
	}
	return fmt.Errorf("engine at %s: %w", e.socket, err)
}

// call sends `in` as JSON, and decodes the answer into `out`. If `in` is nil, the request has no
// body; if `out` is nil, the answer is dropped.
func (e *Engine) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	var body io.Reader
	kind := ""
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, kind = bytes.NewReader(b), "application/json"
	}
	resp, err := e.do(ctx, method, path, query, kind, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // errors are of no use after reading
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("engine: answer to %s %s: %w", method, path, err)
	}
	return nil
}

// filters returns the query by which a listing selects objects. kv has the keys and values of the
// conditions in turn: key, value, key, value.
func filters(kv ...string) url.Values {
	f := make(map[string][]string)
	for i := 0; i+1 < len(kv); i += 2 {
		f[kv[i]] = append(f[kv[i]], kv[i+1])
	}
	b, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("filters %v: %v", kv, err)) // strings can always be encoded
	}
	return url.Values{"filters": {string(b)}}
}
