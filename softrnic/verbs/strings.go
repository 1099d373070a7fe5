package verbs

import "fmt"

var (
	typeNames  = [...]string{"RC", "UC", "UD", "XRC-INI", "XRC-TGT"}
	stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	wrNames    = [...]string{
		"SEND", "SEND_IMM", "SEND_INV", "WRITE", "WRITE_IMM", "READ", "CMP_SWAP", "FETCH_ADD", "LOCAL_INV", "BIND_MW", "REG_MR",
		"MASKED_CMP_SWAP", "MASKED_FETCH_ADD", "ATOMIC_WRITE", "FLUSH",
	}
	wcNames = [...]string{
		"SEND", "WRITE", "READ", "CMP_SWAP", "FETCH_ADD", "LOCAL_INV", "RECV", "RECV_WRITE_IMM", "BIND_MW", "REG_MR", "MASKED_CMP_SWAP",
		"MASKED_FETCH_ADD", "ATOMIC_WRITE", "FLUSH", "NOP",
	}
	asyncNames = [...]string{
		"QP fatal error", "QP request error", "QP access error", "communication established", "send queue drained",
		"CQ error", "port active", "port error", "device fatal error",
		"SRQ limit reached", "last WQE reached", "GID table change", "SRQ error",
	}
)

// name returns names[i], or a text like QPType(7) if there is no such entry.
func name(names []string, kind string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

func (t QPType) String() string { return name(typeNames[:], "QPType", int(t)) }

func (s QPState) String() string { return name(stateNames[:], "QPState", int(s)) }

func (o WROpcode) String() string { return name(wrNames[:], "WROpcode", int(o)) }

func (o WCOpcode) String() string { return name(wcNames[:], "WCOpcode", int(o)) }

func (k AsyncKind) String() string { return name(asyncNames[:], "AsyncKind", int(k)) }
