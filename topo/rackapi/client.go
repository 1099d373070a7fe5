package rackapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
	"unicode"
)

const (
	// answerWait bounds how long a server may take for an answer.
	answerWait = 5 * time.Second
	// maxAnswer bounds the bytes of an answer.
	maxAnswer = 64 << 20
)

// ErrAddress is the kind of an error for an address that is none of a page.
var ErrAddress = errors.New("no address of a page")

// Client reads the state of a rack from the server of `rdmalab web`, which may be on another machine.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a Client for the address that `rdmalab web` prints, like http://192.0.2.7:8780/; a token in it is
// not used. An error is of kind ErrAddress.
func NewClient(address string) (*Client, error) {
	full := address
	if !strings.Contains(address, "://") {
		full = "http://" + address
	}
	u, err := url.Parse(full)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%w: %.100q; write http://HOST:PORT, as `rdmalab web` prints it", ErrAddress, address)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "":
		return nil, fmt.Errorf("%w: %.100q has a path behind it; write %s://%s", ErrAddress, address, u.Scheme, u.Host)
	}
	return &Client{base: u.Scheme + "://" + u.Host, http: &http.Client{
		Timeout:       answerWait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a page of rdmalab makes none
	}}, nil
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Rack returns the state of the rack with its Lists. An error is one line, which names the address. Texts in the state
// have no control characters, whatever the server sends.
func (c *Client) Rack(ctx context.Context) (*Rack, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+PathRack+"?"+Detail, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, c.unreachable(err)
	}
	isJSON := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
	if resp.StatusCode != http.StatusOK {
		var refusal struct{ Error string }
		if isJSON && json.Unmarshal(body, &refusal) == nil && refusal.Error != "" {
			return nil, fmt.Errorf("%s: %.300s", c.base, printable(refusal.Error))
		}
		return nil, fmt.Errorf("%s is no page of rdmalab: it has no %s (status %d); start `rdmalab web` on that machine", c.base, PathRack, resp.StatusCode)
	}
	var r Rack
	if err := json.Unmarshal(body, &r); !isJSON || err != nil || r.Name == "" || r.Time == 0 {
		return nil, fmt.Errorf("%s is no page of rdmalab: its %s is no state of a rack; start `rdmalab web` on that machine", c.base, PathRack)
	}
	clean(reflect.ValueOf(&r).Elem())
	if r.Present && !r.Detail {
		return nil, fmt.Errorf("%s is the page of rdmalab %.40s, which does not tell single queue pairs: use the version of this program on both machines", c.base, r.Version)
	}
	return &r, nil
}

// unreachable says why a server did not answer.
func (c *Client) unreachable(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded) || of != nil && of.Timeout():
		return fmt.Errorf("%s does not answer within %v; is it the address of a page? `rdmalab web` prints it", c.base, answerWait)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("no server answers at %s (%w); start `rdmalab web --listen ADDRESS:PORT` on that machine", c.base, op.Err)
	}
	return fmt.Errorf("%s is no page of rdmalab: %w", c.base, err)
}

// clean makes all texts of a value printable.
func clean(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // no other kind has texts in it
	case reflect.String:
		v.SetString(printable(v.String()))
	case reflect.Struct:
		for i := range v.NumField() {
			clean(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			clean(v.Index(i))
		}
	}
}

// printable replaces what would control a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
