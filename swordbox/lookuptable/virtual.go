package lookuptable

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
)

// Keys of a rule that spreads the connections to a virtual address over hosts. KeyPool and KeyDrain are
// lists of hosts, separated by commas.
const (
	keyVIP   = "vip"
	keyVPort = "vport"
	KeyPool  = "pool"
	KeyDrain = "drain"
)

// virtualKeys are these keys.
func virtualKeys() []rules.Field {
	return []rules.Field{
		extmem.ServersKey(keyVIP, "web", "with action lookup: a virtual address, a host's name or an address. The switch sends each TCP and UDP connection to it to a host of the pool, and keeps the choice in the table; the answers get the virtual address as their source. Other packets are not looked up"),
		rules.Option(keyVPort, "80", "with the key vip: the port of the service at the virtual address and at the hosts, 1 to 65535, without that of RoCEv2", extmem.Between(1, 65535)),
		extmem.ServersKey(KeyPool, "ms0,ms1", fmt.Sprintf("with the key vip: up to %d hosts, to which connections go; a host that is taken out of pool and drain has lost its connections", extmem.MaxServers)),
		extmem.ServersKey(KeyDrain, "ms2", fmt.Sprintf("with the key vip: up to %d hosts that get no new connections and keep those that they have; default: none", extmem.MaxServers)),
	}
}

// virtualOf returns the virtual address of a valid rule, its port and its hosts.
func virtualOf(r *rules.Rule) (vip netip.Addr, port uint16, pool, drain []netip.Addr) {
	if list := extmem.Servers(r.Options[keyVIP]); len(list) > 0 {
		vip = list[0]
	}
	return vip, uint16(extmem.Number(r.Options[keyVPort], 0)), extmem.Servers(r.Options[KeyPool]), extmem.Servers(r.Options[KeyDrain])
}

// checkVirtual returns what is wrong with the virtual address of a rule. Names are not resolved yet.
func checkVirtual(r *rules.Rule) error {
	l := LayoutOf(r)
	if r.Options[keyVIP] == "" {
		for _, key := range []string{keyVPort, KeyPool, KeyDrain} {
			if r.Options[key] != "" {
				return fmt.Errorf("%s has a meaning with the key %s alone", key, keyVIP)
			}
		}
		return nil
	}
	switch {
	case strings.Contains(r.Options[keyVIP], ","):
		return fmt.Errorf("%s is one address", keyVIP)
	case l.Port == 0 || r.Options[KeyPool] == "":
		return fmt.Errorf("%s needs the keys %s and %s", keyVIP, keyVPort, KeyPool)
	case l.Port == rocePort:
		return errors.New("connections of RoCEv2 cannot go to another address, because their ICRC covers it")
	case l.Published || !l.Flow || len(l.Masks) > 0:
		return fmt.Errorf("%s needs %s=%s, and mode hardened", keyVIP, keyMatch, matches[0])
	}
	for _, a := range slices.Concat(l.Pool, l.Drain) {
		if l.VIP.IsValid() && a.Is4() != l.VIP.Is4() {
			return fmt.Errorf("%s and %s have addresses of IPv4 and IPv6", keyVIP, KeyPool)
		}
	}
	return nil
}
