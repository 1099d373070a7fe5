package kvcs

import "net/netip"

// Replicas returns the replicas that the client knows, the preferred one first.
func (c *Client) Replicas() (out []netip.Addr) {
	for _, r := range c.remotes {
		out = append(out, r.Addr)
	}
	return out
}
