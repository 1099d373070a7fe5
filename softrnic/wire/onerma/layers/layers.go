// Package layers adds the messages of the connectionless NIC to gopacket. In a program that imports
// it, the clear header is a gopacket layer behind UDP port 4792, and the encrypted body with the
// tag is the payload of that layer:
//
//	import _ "github.com/rdmalab/rdmalab/softrnic/wire/onerma/layers"
//
// The layer is that of package softrnic/wire/onerma/dissect. The package is made for tools and tests.
package layers

import (
	"github.com/google/gopacket/layers"

	"github.com/rdmalab/rdmalab/softrnic/wire/onerma/dissect"
)

// Port is the UDP destination port.
const Port layers.UDPPort = dissect.Port

// LayerType is the gopacket type of Message.
var LayerType = dissect.LayerType

// Message is the clear header of a message. Its payload is the encrypted body and Tag.
type Message = dissect.Message

// init registers the layer with gopacket for its UDP port; the package has no other state.
func init() { layers.RegisterUDPPortLayerType(Port, LayerType) }
