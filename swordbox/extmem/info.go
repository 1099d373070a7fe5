package extmem

import (
	"net/netip"
	"strings"
)

// Server is a connection to a server as an operator sees it.
type Server struct {
	Address netip.Addr `json:"address"`
	// Up is true if the switch can use the server's memory. If it cannot now, or could not before,
	// Why says why.
	Up  bool   `json:"up"`
	Why string `json:"why,omitempty"`
}

// Names returns the names of servers for a cell of a table, with - before a server whose memory the
// switch cannot use, and the reason. host returns the name of the host that has an address.
func Names(list []Server, host func(netip.Addr) string) string {
	out := make([]string, len(list))
	for i, s := range list {
		if out[i] = host(s.Address); !s.Up {
			out[i] = "-" + out[i]
		}
		if s.Why != "" {
			out[i] += " (" + s.Why + ")"
		}
	}
	return strings.Join(out, ", ")
}
