package rackapi

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Each mistake in an address, and each server that is no page of this version, has one line that says what to do.
func TestMistakesWithServers(t *testing.T) {
	for address, want := range map[string]string{
		"": "write http://HOST:PORT", "ftp://x": "write http://HOST:PORT", "http://": "write http://HOST:PORT", "http://x/api/v1/rack": "write http://x",
		"http://x:1/?a=b": "write http://x:1", "http://[::1": "write http://HOST:PORT",
	} {
		if _, err := NewClient(address); !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", address, err, want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	answers := func(kind string, status int, text string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	const isJSON = "application/json"
	for address, want := range map[string]string{
		closed:                                                    "start `rdmalab web --listen ADDRESS:PORT` on that machine",
		answers("text/html", 404, "<p>no"):                        "is no page of rdmalab: it has no /api/v1/rack (status 404)",
		answers("text/html", 302, ""):                             "(status 302)",
		answers("text/html", 200, "<p>hello"):                     "is no state of a rack",
		answers(isJSON, 200, "{}"):                                "is no state of a rack",
		answers(isJSON, 200, "[1"):                                "is no state of a rack",
		answers(isJSON, 421, `{"error":"the Host header\u001b"}`): ": the Host header?",
		answers(isJSON, 200, `{"name":"r","time":1,"present":true,"version":"v0.1"}`): "is the page of rdmalab v0.1, which does not tell single queue pairs",
	} {
		c, err := NewClient(address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Rack(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), strings.TrimPrefix(address, "http://")) {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
		c.Close()
	}
}

// A server cannot control the terminal on which its texts are shown.
func TestTextsOfServersArePrintable(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"name":"r","time":1,"present":true,"detail":true,"nodes":[{"name":"a\u001b[2J","faults":["\u009b1"]}],"partition":[["\n"]],"lists":{"words":[{"va":"18446744073709551615"}]}}`)
	}))
	defer srv.Close()
	c, err := NewClient(srv.URL + "/#token=x")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Rack(t.Context())
	if err != nil || r.Nodes[0].Name != "a?[2J" || r.Nodes[0].Faults[0] != "?1" || r.Partition[0][0] != "?" || r.Lists.Words[0].VA != 1<<64-1 {
		t.Errorf("%+v, %v", r, err)
	}
}
