package nldev

// Client is the number of the device interface among the clients of NETLINK_RDMA. The upper part of the
// type of a message is the client, the lower one the command.
const (
	client      = 5
	clientShift = 10
)

// command is a command of the device interface (enum rdma_nldev_command).
type command uint16

const (
	cmdGet       command = 1
	cmdSet       command = 2
	cmdNewLink   command = 3
	cmdDelLink   command = 4
	cmdPortGet   command = 5
	cmdSysGet    command = 6
	cmdSysSet    command = 7
	cmdResGet    command = 9
	cmdResQP     command = 10
	cmdResCMID   command = 11
	cmdResCQ     command = 12
	cmdResMR     command = 13
	cmdResPD     command = 14
	cmdChardev   command = 15
	cmdStatSet   command = 16
	cmdStatGet   command = 17
	cmdStatDel   command = 18
	cmdResCtx    command = 22
	cmdResSRQ    command = 23
	commandsMask         = 1<<clientShift - 1
)

// Attributes (enum rdma_nldev_attr).
const (
	attrDevIndex       = 1
	attrDevName        = 2
	attrPortIndex      = 3
	attrCapFlags       = 4
	attrFirmware       = 5
	attrNodeGUID       = 6
	attrSysImageGUID   = 7
	attrPortState      = 12
	attrPortPhysState  = 13
	attrNodeType       = 14
	attrResSummary     = 15
	attrSummaryEntry   = 16
	attrSummaryName    = 17
	attrSummaryCurr    = 18
	attrResQP          = 19
	attrResQPEntry     = 20
	attrLQPN           = 21
	attrRQPN           = 22
	attrRQPSN          = 23
	attrSQPSN          = 24
	attrPathMigState   = 25
	attrResType        = 26
	attrResState       = 27
	attrResPID         = 28
	attrResKernel      = 29
	attrResCMID        = 30
	attrResCMIDEntry   = 31
	attrResPS          = 32
	attrResSrc         = 33
	attrResDst         = 34
	attrResCQ          = 35
	attrResCQEntry     = 36
	attrCQE            = 37
	attrUseCount       = 38
	attrResMR          = 40
	attrResMREntry     = 41
	attrRKey           = 42
	attrLKey           = 43
	attrMRLen          = 45
	attrResPD          = 46
	attrResPDEntry     = 47
	attrNdevIndex      = 50
	attrNdevName       = 51
	attrPDN            = 60
	attrCQN            = 61
	attrMRN            = 62
	attrCMIDN          = 63
	attrCtxN           = 64
	attrNetnsMode      = 66
	attrProtocol       = 67
	attrChardevType    = 69
	attrChardevName    = 70
	attrChardevABI     = 71
	attrChardev        = 72
	attrStatMode       = 74
	attrStatRes        = 75
	attrHWCounters     = 80
	attrHWCounter      = 81
	attrHWCounterName  = 82
	attrHWCounterValue = 83
	attrDIM            = 84
	attrResCtx         = 86
	attrResCtxEntry    = 87
	attrResSRQ         = 88
	attrResSRQEntry    = 89
	attrSRQN           = 90
	attrMinRange       = 91
	attrMaxRange       = 92
	attrCopyOnFork     = 93
)
