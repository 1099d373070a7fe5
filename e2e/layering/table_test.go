// Package layering keeps the packages in order: which package may import which, and a few rules of
// tidiness. The table is a statement of policy. Do not change it to make a build pass: change it
// when the design changes, and ARCHITECTURE.md with it.
package layering

// row is the entry of a package.
type row struct {
	// level: a package imports only packages of lower levels, and those in beside.
	level int
	// beside lists the packages of the same level that the package imports.
	beside []string
	// touches lists the kinds of I/O that the package may do.
	touches touches
}

// touches lists the kinds of I/O that a package may do. TestLintersKnowTheTable compares
// .golangci.yml with it.
type touches int

const (
	// asItsLevel is nothing below level 4, and everything from level 4 on.
	asItsLevel touches = iota
	// nothing marks a sans-I/O package: no clock, goroutine, lock, socket, file or environment.
	nothing
	// noClock marks a package that may block, and takes the time from its runtime: it runs in the
	// simulator too.
	noClock
	// simulation marks a package that runs racks in virtual time. It reads a clock only to say how
	// long a run took, and starts goroutines only to run seeds side by side.
	simulation
	// everything marks the edges, and packages that only tests import.
	everything
)

// sansIO reports whether the package must do no input or output.
func (r row) sansIO() bool { return r.touches == nothing || r.touches == asItsLevel && r.level < 4 }

// virtualTime reports whether the package must not read a clock or set a timer.
func (r row) virtualTime() bool { return r.sansIO() || r.touches == noClock }

// table lists every package. [P] marks levels whose packages are sans-I/O unless their row has
// touches.
var table = map[string]row{
	// L0 [P]: vocabulary.
	"units":                {level: 0},
	"transitions":          {level: 0},
	"softrnic/clock":       {level: 0},
	"nearest":              {level: 0},
	"softrnic/wire":        {level: 0, beside: []string{"nearest"}},
	"softrnic/wire/mad":    {level: 0, beside: []string{"softrnic/wire"}},
	"softrnic/metrics":     {level: 0, beside: []string{"softrnic/stall"}},
	"softrnic/stall":       {level: 0, touches: noClock},
	"softrnic/verbs":       {level: 0, beside: []string{"softrnic/clock", "softrnic/wire"}},
	"store/superblock":     {level: 0},
	"clover/layout":        {level: 0, beside: []string{"store/superblock"}},
	"sherman/layout":       {level: 0, beside: []string{"store/superblock"}},
	"fusee/layout":         {level: 0, beside: []string{"store/superblock"}},
	"softrnic/wire/onerma": {level: 0, beside: []string{"softrnic/wire"}},

	// L1 [P]: mechanisms.
	"softrnic/mem":               {level: 1},
	"softrnic/nldev":             {level: 1},
	"softrnic/reason":            {level: 1, beside: []string{"softrnic/mem"}},
	"softrnic/cost":              {level: 1},
	"softrnic/contention":        {level: 1},
	"softrnic/cq":                {level: 1},
	"softrnic/fault":             {level: 1},
	"softrnic/qpattr":            {level: 1},
	"softrnic/packetio":          {level: 1, touches: noClock},
	"softrnic/memgrant":          {level: 1},
	"softrnic/selective":         {level: 1},
	"softrnic/pathtrace":         {level: 1},
	"softrnic/portqueue":         {level: 1, beside: []string{"softrnic/packetio"}},
	"rackfile/rules":             {level: 1},
	"experiment/papers":          {level: 1},
	"plot":                       {level: 1},
	"plot/export":                {level: 1},
	"swordbox/journal":           {level: 1},
	"softrnic/capture/pcapng":    {level: 1},
	"softrnic/capture/dump":      {level: 1, beside: []string{"softrnic/capture/pcapng"}},
	"softrnic/capture/flows":     {level: 1, beside: []string{"softrnic/capture/dump"}},
	"softrnic/capture/conform":   {level: 1, beside: []string{"softrnic/capture/dump", "softrnic/capture/flows"}},
	"softrnic/capture/ladder":    {level: 1, beside: []string{"softrnic/capture/dump", "softrnic/capture/flows"}},
	"softrnic/capture/story":     {level: 1, beside: []string{"softrnic/capture/dump", "softrnic/capture/flows", "softrnic/capture/ladder"}},
	"softrnic/congestion":        {level: 1},
	"softrnic/congestion/notify": {level: 1, beside: []string{"softrnic/congestion"}},

	"clover/rpc":    {level: 1},
	"sherman/check": {level: 1},
	"sherman/lock":  {level: 1, touches: noClock},

	"fusee/snapshot": {level: 1},

	"store/slab":           {level: 1},
	"store/memcached/text": {level: 1},

	// L2 [P]: machines.
	"softrnic/transport":   {level: 2},
	"softrnic/sendring":    {level: 2},
	"softrnic/trunk":       {level: 2},
	"softrnic/cm":          {level: 2},
	"swordbox/linkstate":   {level: 2},
	"swordbox/telemetry":   {level: 2},
	"swordbox/packettrace": {level: 2, beside: []string{"swordbox/telemetry"}},
	"swordbox/pipeline":    {level: 2},
	"swordbox/conntrack":   {level: 2, beside: []string{"swordbox/transform"}},
	"swordbox/transform":   {level: 2},
	"swordbox/atomiccache": {level: 2, beside: []string{"swordbox/transform"}},
	"softrnic/paced":       {level: 2},
	"rackfile":             {level: 2},
	"onerma/nic":           {level: 2},

	// L3 [P]: composites.
	"redn":                            {level: 3, beside: []string{"softrnic/engine"}},
	"redn/hopscotch":                  {level: 3, beside: []string{"redn"}},
	"softrnic/engine":                 {level: 3},
	"softrnic/verbsengine":            {level: 3, beside: []string{"softrnic/engine"}},
	"swordbox/apps":                   {level: 3, beside: []string{"swordbox/apps/forward", "swordbox/apps/swordbox", "swordbox/switchconn", "swordbox/handler", "swordbox/serialize", "swordbox/published/serialize", "swordbox/cloversteer", "swordbox/published/cloversteer", "swordbox/hotwords", "swordbox/statestore", "swordbox/published/statestore", "swordbox/packetbuffer", "swordbox/published/packetbuffer", "swordbox/lookuptable", "swordbox/published/lookuptable", "swordbox/tracestore", "swordbox/netcache"}},
	"swordbox/apps/forward":           {level: 3},
	"swordbox/apps/swordbox":          {level: 3, beside: []string{"swordbox/switchconn", "swordbox/handler", "swordbox/staleflows"}},
	"swordbox/chipcost":               {level: 3},
	"swordbox/switchconn":             {level: 3},
	"swordbox/staleflows":             {level: 3},
	"swordbox/serialize":              {level: 3, beside: []string{"swordbox/switchconn", "swordbox/requester", "swordbox/handler"}},
	"swordbox/requester":              {level: 3, beside: []string{"swordbox/switchconn"}},
	"swordbox/handler":                {level: 3, beside: []string{"swordbox/switchconn"}},
	"swordbox/extmem":                 {level: 3, beside: []string{"swordbox/requester", "swordbox/switchconn"}},
	"swordbox/hotwords":               {level: 3, beside: []string{"swordbox/handler"}},
	"swordbox/statestore":             {level: 3, beside: []string{"swordbox/extmem", "swordbox/switchconn", "swordbox/handler", "swordbox/hotwords", "swordbox/requester"}},
	"swordbox/tracestore":             {level: 3, beside: []string{"swordbox/extmem", "swordbox/switchconn", "swordbox/handler", "swordbox/hotwords", "swordbox/requester", "swordbox/statestore"}},
	"swordbox/netcache":               {level: 3, beside: []string{"swordbox/extmem", "swordbox/switchconn", "swordbox/handler", "swordbox/hotwords", "swordbox/requester", "swordbox/statestore"}},
	"swordbox/framering":              {level: 3, beside: []string{"swordbox/extmem"}},
	"swordbox/packetbuffer":           {level: 3, beside: []string{"swordbox/extmem", "swordbox/framering", "swordbox/switchconn", "swordbox/handler", "swordbox/requester"}},
	"swordbox/lookuptable":            {level: 3, beside: []string{"swordbox/extmem", "swordbox/framering", "swordbox/switchconn", "swordbox/handler", "swordbox/requester"}},
	"swordbox/published/packetbuffer": {level: 3, beside: []string{"swordbox/extmem", "swordbox/switchconn", "swordbox/handler", "swordbox/packetbuffer", "swordbox/framering"}},
	"swordbox/published/lookuptable":  {level: 3, beside: []string{"swordbox/extmem", "swordbox/switchconn", "swordbox/handler", "swordbox/lookuptable", "swordbox/framering"}},
	"swordbox/published/serialize":    {level: 3, beside: []string{"swordbox/handler"}},
	"swordbox/published/statestore":   {level: 3, beside: []string{"swordbox/extmem", "swordbox/switchconn", "swordbox/handler", "swordbox/hotwords", "swordbox/requester", "swordbox/statestore"}},
	"swordbox/cloversteer":            {level: 3, beside: []string{"swordbox/handler"}},
	"swordbox/published/cloversteer":  {level: 3, beside: []string{"swordbox/switchconn", "swordbox/handler", "swordbox/requester"}},
	"onerma/executor":                 {level: 3},
	"sim/simnet":                      {level: 3},
	"topo/racks":                      {level: 3},
	"topo/rackplan":                   {level: 3},
	"rackfile/costs":                  {level: 3},

	// L4: edges (goroutines, sockets, privileges).
	"softrnic/clock/real":          {level: 4},
	"softrnic/pollpace":            {level: 4},
	"softrnic/packetio/afpacket":   {level: 4, beside: []string{"softrnic/pollpace"}},
	"softrnic/packetio/direct":     {level: 4},
	"softrnic/packetio/trunkport":  {level: 4, beside: []string{"softrnic/clock/real", "softrnic/packetio/afpacket", "softrnic/pollpace"}},
	"softrnic/packetio/memlink":    {level: 4, beside: []string{"softrnic/ipc/ring", "softrnic/unixsocket"}},
	"softrnic/capture/tap":         {level: 4},
	"softrnic/wire/dissect":        {level: 4},
	"softrnic/wire/layers":         {level: 4, beside: []string{"softrnic/wire/dissect"}},
	"softrnic/wire/onerma/dissect": {level: 4, beside: []string{"softrnic/wire/dissect"}},
	"softrnic/wire/onerma/layers":  {level: 4, beside: []string{"softrnic/wire/onerma/dissect"}},
	"softrnic/capture/crosscheck":  {level: 4, beside: []string{"softrnic/wire/onerma/dissect", "softrnic/wire/dissect"}},
	"softrnic/device":              {level: 4, beside: []string{"softrnic/clock/real", "softrnic/pollpace"}},
	"softrnic/control":             {level: 4, beside: []string{"softrnic/unixsocket"}},
	"softrnic/unixsocket":          {level: 4},
	"softrnic/rdmacm":              {level: 4},
	"softrnic/ipc":                 {level: 4, beside: []string{"softrnic/clock/real", "softrnic/device", "softrnic/ipc/proto", "softrnic/ipc/ring", "softrnic/rdmacm", "softrnic/pollpace"}},
	"softrnic/ipc/ring":            {level: 4},
	"softrnic/ipc/proto":           {level: 4, beside: []string{"softrnic/rdmacm"}},
	"softrnic/ipc/serve":           {level: 4, beside: []string{"softrnic/ipc/proto", "softrnic/ipc/ring", "softrnic/pollpace", "softrnic/rdmacm", "softrnic/ucma", "softrnic/uverbs", "softrnic/unixsocket"}},
	"softrnic/ucma":                {level: 4, beside: []string{"softrnic/uverbs"}, touches: noClock},
	"softrnic/uverbs":              {level: 4},
	"softrnic/uverbs/preload":      {level: 4},
	"topo/switchd":                 {level: 4, beside: []string{"softrnic/clock/real", "softrnic/control", "softrnic/packetio/afpacket", "softrnic/packetio/direct", "softrnic/packetio/memlink", "softrnic/packetio/trunkport", "softrnic/capture/tap", "topo/guests", "topo/nl"}},
	"topo/nl":                      {level: 4},
	"topo/guests":                  {level: 4},
	"topo/crashlog":                {level: 4},
	"topo/rackapi":                 {level: 4},
	"topo/container":               {level: 4, beside: []string{"topo/nl", "softrnic/control", "softrnic/unixsocket"}},
	"topo/rack":                    {level: 4, beside: []string{"topo/container", "topo/crashlog", "topo/guests", "topo/nl", "softrnic/control", "softrnic/uverbs", "softrnic/uverbs/preload"}},
	"topo/cni":                     {level: 4, beside: []string{"topo/guests", "topo/nl", "topo/rack"}},
	"sim/simrack":                  {level: 4, beside: []string{"softrnic/rdmacm", "sim/workers"}, touches: nothing},
	"sim/workers":                  {level: 4},
	"sim/hugepages":                {level: 4},
	"sim/history":                  {level: 4, touches: noClock},

	"onerma/host": {level: 4},

	// L5: applications, and the daemon that runs them.
	"onerma/measure":        {level: 5, beside: []string{"softrnic/perf"}},
	"onerma/socket":         {level: 5},
	"softrnic/memservice":   {level: 5, touches: noClock},
	"sim/alltoall":          {level: 5},
	"softrnic/perf":         {level: 5, beside: []string{"softrnic/memservice"}, touches: noClock},
	"softrnic/perf/raw":     {level: 5, beside: []string{"softrnic/perf"}},
	"softrnic/remotemem":    {level: 5, touches: noClock},
	"softrnic/ipc/remote":   {level: 5, beside: []string{"softrnic/memservice"}},
	"softrnic/qpshare":      {level: 5, touches: noClock},
	"store":                 {level: 5, beside: []string{"store/kv", "store/passive"}, touches: noClock},
	"store/all":             {level: 5, beside: []string{"clover/plugin", "fusee/plugin", "sherman/plugin", "store/kvcs/plugin", "store/nictable", "store/pdpm", "store/template"}},
	"store/passive":         {level: 5, beside: []string{"softrnic/remotemem", "store/kv", "softrnic/memservice"}, touches: noClock},
	"store/pdpm":            {level: 5, beside: []string{"softrnic/memservice", "softrnic/remotemem", "store", "store/kv", "store/lease", "store/passive", "store/rpc"}, touches: noClock},
	"store/memcached":       {level: 5, beside: []string{"store/kv"}},
	"store/nictable":        {level: 5, beside: []string{"softrnic/remotemem", "store", "store/kv", "store/memcached", "store/passive", "store/rpc"}, touches: noClock},
	"store/rpc":             {level: 5, beside: []string{"softrnic/remotemem"}, touches: noClock},
	"store/template":        {level: 5, beside: []string{"store", "store/kv", "store/passive"}, touches: noClock},
	"store/kv":              {level: 5, touches: noClock},
	"store/kvcs":            {level: 5, beside: []string{"store/kv"}, touches: noClock},
	"store/kvcs/plugin":     {level: 5, beside: []string{"store", "store/kv", "store/kvcs"}},
	"sim/kvcsrack":          {level: 5, beside: []string{"store/kvcs"}, touches: simulation},
	"store/lease":           {level: 5, beside: []string{"softrnic/memservice"}, touches: noClock},
	"store/client":          {level: 5, beside: []string{"store", "store/bytekeys", "store/kv"}},
	"store/bytekeys":        {level: 5, beside: []string{"store/kv"}, touches: noClock},
	"store/trace":           {level: 5, beside: []string{"store/kv"}, touches: noClock},
	"store/spans":           {level: 5, beside: []string{"store/kv"}},
	"clover":                {level: 5, beside: []string{"softrnic/remotemem", "softrnic/qpshare", "store/kv", "store/lease", "store/rpc", "softrnic/memservice"}, touches: noClock},
	"clover/plugin":         {level: 5, beside: []string{"clover", "clover/meta", "store", "store/kv"}},
	"fusee/plugin":          {level: 5, beside: []string{"fusee", "store", "store/kv", "store/passive"}},
	"sherman/plugin":        {level: 5, beside: []string{"sherman", "sherman/audit", "store", "store/kv", "store/passive"}},
	"sherman/audit":         {level: 5, beside: []string{"sherman"}, touches: noClock},
	"sherman":               {level: 5, beside: []string{"softrnic/remotemem", "store/kv", "store/lease", "softrnic/memservice"}, touches: noClock},
	"fusee":                 {level: 5, beside: []string{"softrnic/remotemem", "store/kv", "softrnic/memservice"}, touches: noClock},
	"clover/meta":           {level: 5, beside: []string{"softrnic/remotemem", "softrnic/memservice", "store/lease", "store/rpc"}, touches: noClock},
	"softrnic/perftestpeer": {level: 5},
	"topo/compact":          {level: 5, beside: []string{"topo/hostd"}},
	"topo/hostd":            {level: 5, beside: []string{"onerma/measure", "onerma/socket", "store", "store/kv", "store/trace", "softrnic/perftestpeer", "softrnic/memservice", "softrnic/perf", "softrnic/perf/raw", "softrnic/remotemem"}},
	"experiment/calibrate":  {level: 5, touches: simulation},
	"experiment":            {level: 5, beside: []string{"clover", "sherman", "store/kv"}, touches: simulation},
	"experiment/chains":     {level: 5, beside: []string{"experiment"}, touches: simulation},
	"experiment/insim":      {level: 5, beside: []string{"clover", "clover/meta", "fusee", "sherman", "softrnic/memservice", "softrnic/perf", "store", "store/kv", "store/kvcs", "sim/kvcsrack", "store/memcached", "store/nictable", "store/passive", "store/pdpm", "experiment/calibrate", "experiment", "experiment/chains"}, touches: simulation},
	"topo/doctor":           {level: 5},
	"topo/machines":         {level: 5},
	"topo/bundle":           {level: 5},
	"topo/exercise":         {level: 5, beside: []string{"topo/hostd", "softrnic/memservice", "softrnic/perf"}},
	"topo/why":              {level: 5, beside: []string{"topo/hostd"}, touches: nothing},
	"topo/top":              {level: 5},
	"topo/top/live":         {level: 5, beside: []string{"store", "topo/hostd", "topo/machines", "topo/top"}},
	"topo/export":           {level: 5, beside: []string{"store", "topo/hostd", "topo/top/live"}},
	"topo/web":              {level: 5, beside: []string{"topo/export", "topo/hostd", "topo/top/live"}},
	"sim/scenario":          {level: 5, beside: []string{"store", "clover", "store/kv", "store/passive", "clover/meta", "sherman", "sherman/audit", "fusee", "softrnic/memservice", "softrnic/perf", "store/bytekeys", "store/kvcs", "sim/kvcsrack", "store/template"}, touches: simulation},

	// L6 and L7: the binary, the suites.
	"onerma/socket/example":            {level: 6},
	"softrnic/ipc/example":             {level: 6},
	"compose/examples/goclient":        {level: 6},
	"compose/examples/goclient/beyond": {level: 6},
	"compose/examples/goclient/hello":  {level: 6},
	"compose/examples/goclient/greet":  {level: 6},
	"compose/examples/own":             {level: 6, beside: []string{"cli"}},
	"compose/examples/own/hundredth":   {level: 6},
	"compose/examples/own/patient":     {level: 6},
	"compose/examples/own/shelf":       {level: 6},
	"compose/examples/own/stutter":     {level: 6},
	"kube/api/v1alpha1":                {level: 6},
	"kube/node":                        {level: 6},
	"kube/version":                     {level: 6},
	"kube/image":                       {level: 6},
	"kube/rackspec":                    {level: 6, beside: []string{"kube/node"}},
	"kube/cni":                         {level: 6, beside: []string{"kube/node"}},
	"kube/agent":                       {level: 6, beside: []string{"kube/api/v1alpha1", "kube/cni", "kube/node"}},
	"kube/host":                        {level: 6},
	"kube/leaf":                        {level: 6, beside: []string{"kube/api/v1alpha1", "kube/rackspec"}},
	"kube/operator":                    {level: 6, beside: []string{"kube/api/v1alpha1", "kube/rackspec"}},
	"kube/kubectl":                     {level: 6, beside: []string{"cli", "kube/api/v1alpha1", "kube/rackspec", "kube/version"}},
	"kube/cmd/kubectl-rdmalab":         {level: 6, beside: []string{"kube/kubectl"}},
	"kube/cmd/rdmalab-kube-cni":        {level: 6, beside: []string{"kube/cni"}},
	"kube/cmd/rdmalab-kube": {level: 6, beside: []string{
		"kube/agent", "kube/host", "kube/image", "kube/leaf", "kube/node", "kube/operator", "kube/version",
	}},
	"kube/e2e/lab":        {level: 7},
	"kube/e2e/pause":      {level: 7},
	"kube/e2e/driver":     {level: 7},
	"cli":                 {level: 6},
	"cmd/rdmalab":         {level: 6, beside: []string{"cli"}},
	"e2e/mutate":          {level: 7},
	"e2e/benchrack":       {level: 7, beside: []string{"e2e/interop/ask", "e2e/interop/image"}},
	"e2e/suites":          {level: 7},
	"e2e/web":             {level: 7},
	"e2e/coverage":        {level: 7, beside: []string{"e2e/coverage/record"}},
	"e2e/coverage/record": {level: 0, touches: everything},
	"e2e/golden":          {level: 7},
	"e2e/kvtest":          {level: 7},
	"e2e/memcable":        {level: 7},
	"e2e/memcgroup":       {level: 7},
	"e2e/verbstest":       {level: 7},
	"e2e/fixture":         {level: 7},
	"e2e/console":         {level: 7},
	"e2e/interop/ask":     {level: 7},
	"e2e/interop/guest":   {level: 7, beside: []string{"e2e/interop/ask"}},
	"e2e/interop/image":   {level: 7, beside: []string{"e2e/interop/ask"}},
}
