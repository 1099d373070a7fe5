package mad

import "fmt"

// Reason is the code in a REJ that says why a connection was refused (IBTA 12.6.7.2).
type Reason uint16

// Reasons of a REJ.
const (
	ReasonNoQP             Reason = 1
	ReasonNoEEC            Reason = 2
	ReasonNoResources      Reason = 3
	ReasonTimeout          Reason = 4
	ReasonUnsupported      Reason = 5
	ReasonInvalidID        Reason = 6
	ReasonInvalidInstance  Reason = 7
	ReasonInvalidService   Reason = 8
	ReasonInvalidType      Reason = 9
	ReasonStale            Reason = 10
	ReasonNoRDC            Reason = 11
	ReasonGIDRejected      Reason = 12
	ReasonLIDRejected      Reason = 13
	ReasonInvalidSL        Reason = 14
	ReasonInvalidClass     Reason = 15
	ReasonInvalidHops      Reason = 16
	ReasonInvalidRate      Reason = 17
	ReasonAltGIDRejected   Reason = 18
	ReasonAltLIDRejected   Reason = 19
	ReasonAltInvalidSL     Reason = 20
	ReasonAltInvalidClass  Reason = 21
	ReasonAltInvalidHops   Reason = 22
	ReasonAltInvalidRate   Reason = 23
	ReasonRedirect         Reason = 24 // the peer is to use another port and CM
	ReasonPortRedirect     Reason = 25
	ReasonInvalidMTU       Reason = 26
	ReasonNoRespResources  Reason = 27
	ReasonConsumer         Reason = 28
	ReasonRNRRejected      Reason = 29
	ReasonDuplicateID      Reason = 30
	ReasonInvalidClassVer  Reason = 31
	ReasonInvalidFlowLabel Reason = 32
	ReasonAltInvalidFlow   Reason = 33
	ReasonVendorRejected   Reason = 35
)

var reasonTexts = map[Reason]string{
	ReasonNoQP: "no queue pair available", ReasonNoEEC: "no EE context available", ReasonNoResources: "no resources available",
	ReasonTimeout: "timeout", ReasonUnsupported: "unsupported request", ReasonInvalidID: "invalid communication ID",
	ReasonInvalidInstance: "invalid communication instance", ReasonInvalidService: "invalid service ID",
	ReasonInvalidType: "invalid transport service type", ReasonStale: "stale connection", ReasonNoRDC: "RDC does not exist",
	ReasonGIDRejected: "primary remote port GID rejected", ReasonLIDRejected: "primary remote port LID rejected",
	ReasonInvalidSL: "invalid primary SL", ReasonInvalidClass: "invalid primary traffic class",
	ReasonInvalidHops: "invalid primary hop limit", ReasonInvalidRate: "invalid primary packet rate",
	ReasonAltGIDRejected: "alternate remote port GID rejected", ReasonAltLIDRejected: "alternate remote port LID rejected",
	ReasonAltInvalidSL: "invalid alternate SL", ReasonAltInvalidClass: "invalid alternate traffic class",
	ReasonAltInvalidHops: "invalid alternate hop limit", ReasonAltInvalidRate: "invalid alternate packet rate",
	ReasonRedirect: "port and CM redirection", ReasonPortRedirect: "port redirection", ReasonInvalidMTU: "invalid path MTU",
	ReasonNoRespResources: "insufficient responder resources", ReasonConsumer: "consumer reject",
	ReasonRNRRejected: "RNR retry count rejected", ReasonDuplicateID: "duplicate local communication ID",
	ReasonInvalidClassVer: "unsupported class version", ReasonInvalidFlowLabel: "invalid primary flow label",
	ReasonAltInvalidFlow: "invalid alternate flow label", ReasonVendorRejected: "vendor specific",
}

func (r Reason) String() string {
	if s, ok := reasonTexts[r]; ok {
		return s
	}
	return fmt.Sprintf("reason %d", uint16(r))
}
