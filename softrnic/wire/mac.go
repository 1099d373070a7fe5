package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// MAC is an Ethernet address.
type MAC [6]byte

// ErrMAC means that a text is no Ethernet address.
var ErrMAC = errors.New("not an Ethernet address like 02:00:5e:10:00:01")

// IsMulticast reports whether m is a group address; the broadcast address is one, too.
func (m MAC) IsMulticast() bool { return m[0]&1 != 0 }

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// ParseMAC parses a text as String returns it. Upper and lower case are the same, and '-' may stand
// for ':'.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 {
		return MAC{}, fmt.Errorf("%q: %w", s, ErrMAC)
	}
	for i := range m {
		_, err := hex.Decode(m[i:i+1], []byte(s[3*i:3*i+2]))
		if err != nil || (i > 0 && s[3*i-1] != ':' && s[3*i-1] != '-') {
			return MAC{}, fmt.Errorf("%q: %w", s, ErrMAC)
		}
	}
	return m, nil
}

func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func (m *MAC) UnmarshalText(text []byte) error {
	v, err := ParseMAC(string(text))
	if err == nil {
		*m = v
	}
	return err
}
