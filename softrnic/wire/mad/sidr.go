package mad

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

//	+---------------------------------------------------------------+
//	|                          request ID                           |
//	+-------------------------------+-------------------------------+
//	|             P_Key             |           reserved            |
//	+-------------------------------+-------------------------------+
//	|                          service ID                           |
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                    private data, 216 bytes                    |
//	+---------------------------------------------------------------+

// Lengths of fields of SIDR_REQ and SIDR_REP, in bytes.
const (
	SIDRReqPrivate = 216
	SIDRRepPrivate = 136
	SIDRRepInfo    = 72
)

// SIDRReq requests the datagram queue pair of a service (IBTA 12.11.1).
type SIDRReq struct {
	RequestID CommID
	PKey      uint16
	Service   ServiceID
	Private   [SIDRReqPrivate]byte
}

func (*SIDRReq) Attr() Attr { return AttrSIDRReq }

func (m *SIDRReq) Parse(b []byte) error {
	if err := need(b, bodyLen, "SIDR_REQ"); err != nil {
		return err
	}
	*m = SIDRReq{RequestID: CommID(be32(b, 0)), PKey: be16(b, 4), Service: ServiceID(be64(b, 8)), Private: [SIDRReqPrivate]byte(b[16:])}
	return nil
}

func (m *SIDRReq) AppendTo(b []byte) []byte {
	b = put16(put16(put32(b, uint32(m.RequestID)), m.PKey), 0)
	return append(put64(b, uint64(m.Service)), m.Private[:]...)
}

// SIDRStatus is the result of a SIDR_REQ (IBTA 12.11.2.1).
type SIDRStatus uint8

// Values of SIDRStatus.
const (
	SIDRValid       SIDRStatus = 0
	SIDRUnsupported SIDRStatus = 1 // service ID not supported
	SIDRRejected    SIDRStatus = 2
	SIDRNoQP        SIDRStatus = 3
	SIDRRedirect    SIDRStatus = 4
	SIDRVersion     SIDRStatus = 5 // unsupported version
)

var sidrTexts = map[SIDRStatus]string{
	SIDRValid: "valid", SIDRUnsupported: "service ID not supported", SIDRRejected: "rejected", SIDRNoQP: "no queue pair available",
	SIDRRedirect: "redirection", SIDRVersion: "unsupported version",
}

func (s SIDRStatus) String() string {
	if t, ok := sidrTexts[s]; ok {
		return t
	}
	return fmt.Sprintf("status %d", uint8(s))
}

//	+---------------------------------------------------------------+
//	|                          request ID                           |
//	+---------------+---------------+-------------------------------+
//	|    status     |  info length  |           reserved            |
//	+---------------+---------------+---------------+---------------+
//	|                      QPN                      |    reserved   |
//	+-----------------------------------------------+---------------+
//	|                          service ID                           |
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                             Q_Key                             |
//	+---------------------------------------------------------------+
//	|                additional information, 72 bytes               |
//	+---------------------------------------------------------------+
//	|                    private data, 136 bytes                    |
//	+---------------------------------------------------------------+

// SIDRRep answers a SIDR_REQ (IBTA 12.11.2).
type SIDRRep struct {
	RequestID CommID
	Status    SIDRStatus
	InfoLen   uint8
	QPN       wire.QPN
	Service   ServiceID
	QKey      uint32
	Info      [SIDRRepInfo]byte
	Private   [SIDRRepPrivate]byte
}

func (*SIDRRep) Attr() Attr { return AttrSIDRRep }

func (m *SIDRRep) Parse(b []byte) error {
	if err := need(b, bodyLen, "SIDR_REP"); err != nil {
		return err
	}
	*m = SIDRRep{
		RequestID: CommID(be32(b, 0)), Status: SIDRStatus(b[4]), InfoLen: b[5], QPN: wire.QPN(be24(b, 8)), Service: ServiceID(be64(b, 12)), QKey: be32(b, 20),
	}
	copy(m.Info[:], b[24:])
	copy(m.Private[:], b[24+SIDRRepInfo:])
	return nil
}

func (m *SIDRRep) AppendTo(b []byte) []byte {
	b = append(put32(b, uint32(m.RequestID)), uint8(m.Status), m.InfoLen, 0, 0)
	b = put64(put24(b, uint32(m.QPN), 0), uint64(m.Service))
	b = put32(b, m.QKey)
	return append(append(b, m.Info[:]...), m.Private[:]...)
}
