package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/control"
)

// NewToken makes a random token of 144 bits.
func NewToken() string {
	var b [18]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// policy is the Content-Security-Policy of everything but a ladder: all that the page uses comes from
// this server, and no script is in the page itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard refuses requests that a browser sends for another site's page.
type guard struct {
	next  http.Handler
	hosts []string // names in the Host header beside addresses and localhost
}

// ServeHTTP checks in this order: the Host header is an address, localhost or a name that was allowed, so
// that no name that an attacker's DNS points here is served (DNS rebinding); an Origin header names this
// server; what the browser says of the request's source (Sec-Fetch-Site) is not another site, unless a
// link was followed to the page.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case !g.hostAllowed(r.Host):
		control.WriteError(w, control.Errorf(http.StatusMisdirectedRequest, "the Host header %.100q is neither an address nor a name that --allow-host has allowed", r.Host))
	case !sameOrigin(r):
		control.WriteError(w, control.Errorf(http.StatusForbidden, "the request comes from another site's page"))
	default:
		g.next.ServeHTTP(w, r)
	}
}

func (g *guard) hostAllowed(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") || slices.ContainsFunc(g.hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

func sameOrigin(r *http.Request) bool {
	if o := r.Header.Get("Origin"); o != "" {
		u, err := url.Parse(o)
		return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	return r.Method == http.MethodGet && r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate"
}

// mayChange returns an error unless the request has the token. An empty token allows no request.
func mayChange(r *http.Request, token string) error {
	if token == "" {
		return control.Errorf(http.StatusForbidden, "this page is read-only: start it with rdmalab web --control")
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	if !ok || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
		return control.Errorf(http.StatusUnauthorized, "the token is missing or wrong: open the address that rdmalab web --control has printed")
	}
	return nil
}
