package congestion

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
)

// Algorithms of Params.
const (
	// AlgorithmDCQCN: a CNP lowers the rate of the queue pair that it names.
	AlgorithmDCQCN = "dcqcn"
	// AlgorithmTimely: the round-trip time changes the rate of a queue pair.
	AlgorithmTimely = "timely"
	// AlgorithmSwift: the round-trip time changes how many packets a queue pair has in flight.
	AlgorithmSwift = "swift"
	// AlgorithmFixed: each queue pair sends at rp_max_rate.
	AlgorithmFixed = "fixed"
	// AlgorithmNone: CNPs are sent, and those that arrive are ignored; nothing is paced.
	AlgorithmNone = "none"
)

// Algorithms lists the algorithms.
func Algorithms() []string { return slices.Sorted(maps.Keys(controllers)) }

// Profiles of Params.
const (
	// ProfilePaper has the values of the DCQCN paper (SIGCOMM 2015, for links of 40 Gbit/s) and its
	// rules: a CNP cuts at once and restarts the timers.
	ProfilePaper = "paper"
	// ProfileMLX has the default values of ConnectX NICs (mstflint, mlxconfig_host.db), by the reading
	// of HPCC's simulator: alpha is updated periodically, by whether a CNP has arrived in the period;
	// the rate is cut at most once a monitor period. One value is not the NIC's: rp_byte_reset is 2
	// MiB, because the unit of the NIC's 32767 is not documented, and in bytes it makes the rates
	// diverge.
	ProfileMLX = "mlx"
)

// Profiles lists the profiles.
func Profiles() []string { return []string{ProfilePaper, ProfileMLX} }

// Scope says for what a notification point limits the rate of CNPs.
const (
	ScopeQP   = "qp"   // each queue pair
	ScopeIP   = "ip"   // each address to which CNPs are sent
	ScopePort = "port" // all CNPs of the NIC
)

// Scopes lists the scopes.
func Scopes() []string { return []string{ScopeQP, ScopeIP, ScopePort} }

// Params are the parameters of congestion control on one NIC, for all algorithms. Profile returns values for it. The
// names of the fields in files and listings are in Fields.
type Params struct {
	Algorithm string `json:"algorithm"`
	Profile   string `json:"profile"`

	// TimeReset is the period of the increase timer; ByteReset is after how many sent bytes the byte
	// counter increases the rate, 0 means that there is no byte counter; Threshold is F: the number of
	// increases in fast recovery.
	TimeReset time.Duration `json:"rp_time_reset"`
	ByteReset int64         `json:"rp_byte_reset"`
	Threshold int64         `json:"rp_threshold"`
	// AIRate and HAIRate are the steps of additive and of hyper increase, in bits a second.
	AIRate  int64 `json:"rp_ai_rate"`
	HAIRate int64 `json:"rp_hai_rate"`
	// MaxRate is the line rate, at which queue pairs begin, and MinRate the lowest rate; in bits a
	// second.
	MaxRate int64 `json:"rp_max_rate"`
	MinRate int64 `json:"rp_min_rate"`
	// RateOnFirstCNP, if not 0, replaces the rate at the first CNP before the cut.
	RateOnFirstCNP int64 `json:"rp_rate_to_set_on_first_cnp"`
	// MinDecFac: a cut leaves at least so many percent of the rate.
	MinDecFac int64 `json:"rp_min_dec_fac"`
	// MonitorPeriod: the rate is cut at most once in it; 0 means at every CNP.
	MonitorPeriod time.Duration `json:"rp_rate_reduce_monitor_period"`
	// ClampTarget and ClampTargetATI say when a cut lowers the target rate to the rate before the cut:
	// always, or only if the timer has increased the rate since the cut before.
	ClampTarget    int64 `json:"rp_clamp_tgt_rate"`
	ClampTargetATI int64 `json:"rp_clamp_tgt_rate_ati"`
	// G is the weight of the old alpha in units of 1/1024; RTT the period K in which alpha is updated.
	// InitialAlpha is the first alpha in units of 1/1024. GD: a cut removes the share alpha·2^(10-GD).
	G            int64         `json:"rp_dce_tcp_g"`
	RTT          time.Duration `json:"rp_dce_tcp_rtt"`
	InitialAlpha int64         `json:"rp_initial_alpha_value"`
	GD           int64         `json:"rp_gd"`

	NP
	RTTParams
}

// RTTParams are the parameters of the algorithms whose signal is the round-trip time.
type RTTParams struct {
	TimelyParams
	SwiftParams
}

// NP are the parameters of the notification point.
type NP struct {
	// Interval is the shortest time between two CNPs in one Scope.
	Interval time.Duration `json:"np_min_time_between_cnps"`
	Scope    string        `json:"np_scope"`
	// DSCP is that of CNPs. A switch gives them a priority by it.
	DSCP int64 `json:"np_cnp_dscp"`
}

const (
	// maxRate bounds rates: 4 Tbit/s.
	maxRate = 4_000_000_000_000
	// maxPeriod bounds periods.
	maxPeriod = 10 * time.Second
	// maxAI and maxCwnd bound the windows of Swift, in 1/1024 packets.
	maxAI, maxCwnd = 64 << 10, 1 << 24
)

// Profile returns the parameters of a profile, for DCQCN on links of a rate in bits a second. It
// returns false if there is no such profile.
func Profile(name string, rate int64) (Params, bool) {
	p := Params{
		Algorithm: AlgorithmDCQCN, Profile: name, MaxRate: rate, NP: NP{Scope: ScopeQP, DSCP: 48}, MinDecFac: 50, GD: 11, InitialAlpha: 1024,
		RTTParams: RTTParams{timelyDefaults(), swiftDefaults()},
	}
	switch name {
	case ProfilePaper:
		p.TimeReset, p.ByteReset, p.Threshold = 55*time.Microsecond, 10_000_000, 5
		p.AIRate, p.HAIRate, p.MinRate = 40_000_000, 200_000_000, 40_000_000
		p.ClampTarget, p.G, p.RTT = 1, 1020, 55*time.Microsecond
		p.Interval = 50 * time.Microsecond
	case ProfileMLX:
		p.TimeReset, p.ByteReset, p.Threshold = 300*time.Microsecond, 2<<20, 1
		p.AIRate, p.HAIRate, p.MinRate = 5_000_000, 50_000_000, 1_000_000
		p.ClampTargetATI, p.G, p.RTT, p.InitialAlpha = 1, 1019, time.Microsecond, 1023
		p.MonitorPeriod, p.Interval = 4*time.Microsecond, 4*time.Microsecond
	default:
		return Params{}, false
	}
	p.MinRate = min(p.MinRate, rate)
	return p, true
}

// Kind is the type of a parameter's value.
type Kind uint8

const (
	Number   Kind = iota // a number without unit
	Rate                 // bits a second
	Bytes                // bytes
	Duration             // nanoseconds
)

// Field is a numeric parameter. Its value is *Int, or *Time if Kind is Duration; Low and High bound
// it.
type Field struct {
	Name      string
	Kind      Kind
	Int       *int64
	Time      *time.Duration
	Low, High int64
	Help      string
}

// Value returns the value of the parameter.
func (f *Field) Value() int64 {
	if f.Kind == Duration {
		return int64(*f.Time)
	}
	return *f.Int
}

// Set changes the parameter.
func (f *Field) Set(v int64) error {
	if v < f.Low || v > f.High {
		return fmt.Errorf("%s: use a value from %s", f.Name, f.Bounds())
	}
	if f.Kind == Duration {
		*f.Time = time.Duration(v)
	} else {
		*f.Int = v
	}
	return nil
}

// Bounds returns the least and the largest value as text.
func (f *Field) Bounds() string { return f.text(f.Low) + " to " + f.text(f.High) }

func (f *Field) text(v int64) string {
	switch f.Kind {
	case Duration:
		return time.Duration(v).String()
	case Rate:
		return RateText(v)
	case Bytes:
		return fmt.Sprintf("%dB", v)
	case Number:
	}
	return fmt.Sprint(v)
}

// String returns the parameter's value with its unit.
func (f *Field) String() string { return f.text(f.Value()) }

// RateText returns a rate with its unit, as rack files read it, with at most three digits behind the
// point.
func RateText(bps int64) string {
	for _, u := range []struct {
		name   string
		factor int64
	}{{"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}} {
		if bps >= u.factor {
			s := fmt.Sprintf("%.3f", float64(bps)/float64(u.factor))
			return strings.TrimRight(strings.TrimRight(s, "0"), ".") + u.name
		}
	}
	return fmt.Sprintf("%dbit", bps)
}

// Fields lists the numeric parameters of p in the order of the documentation.
func (p *Params) Fields() []Field {
	num := func(name string, v *int64, low, high int64, help string) Field {
		return Field{Name: name, Int: v, Low: low, High: high, Help: help}
	}
	rate := func(name string, v *int64, low int64, help string) Field {
		return Field{Name: name, Kind: Rate, Int: v, Low: low, High: maxRate, Help: help}
	}
	span := func(name string, v *time.Duration, low time.Duration, help string) Field {
		return Field{Name: name, Kind: Duration, Time: v, Low: int64(low), High: int64(maxPeriod), Help: help}
	}
	return []Field{
		rate("rp_max_rate", &p.MaxRate, 1_000_000, "line rate, at which queue pairs begin"),
		rate("rp_min_rate", &p.MinRate, 1_000, "lowest rate"),
		rate("rp_ai_rate", &p.AIRate, 1, "step of additive increase"),
		rate("rp_hai_rate", &p.HAIRate, 1, "step of hyper increase"),
		span("rp_time_reset", &p.TimeReset, time.Microsecond, "period of the increase timer"),
		{Name: "rp_byte_reset", Kind: Bytes, Int: &p.ByteReset, High: 1 << 40, Help: "sent bytes between two increases by the byte counter; 0: none"},
		num("rp_threshold", &p.Threshold, 1, 31, "increases in fast recovery"),
		num("rp_min_dec_fac", &p.MinDecFac, 1, 100, "percent of the rate that a cut leaves at least"),
		span("rp_rate_reduce_monitor_period", &p.MonitorPeriod, 0, "the rate is cut at most once in it; 0: at every CNP"),
		num("rp_clamp_tgt_rate", &p.ClampTarget, 0, 1, "1: each cut lowers the target rate"),
		num("rp_clamp_tgt_rate_ati", &p.ClampTargetATI, 0, 1, "1: a cut lowers the target rate if the timer has increased the rate since the last cut"),
		{Name: "rp_rate_to_set_on_first_cnp", Kind: Rate, Int: &p.RateOnFirstCNP, High: maxRate, Help: "rate at the first CNP, before the cut; 0: keep it"},
		num("rp_dce_tcp_g", &p.G, 1, 1023, "weight of the old alpha, in 1/1024: 1020 is g = 1/256"),
		span("rp_dce_tcp_rtt", &p.RTT, 100*time.Nanosecond, "period in which alpha is updated"),
		num("rp_initial_alpha_value", &p.InitialAlpha, 1, 1024, "first alpha, in 1/1024"),
		num("rp_gd", &p.GD, 10, 15, "a cut removes the share alpha*2^(10-rp_gd)"),
		span("np_min_time_between_cnps", &p.Interval, 0, "shortest time between two CNPs in one scope"),
		num("np_cnp_dscp", &p.DSCP, 0, 63, "DSCP of CNPs"),
		num("timely_alpha", &p.TimelyParams.Alpha, 1, 1024, "weight of a new difference of round-trip times, in 1/1024"),
		num("timely_beta", &p.TimelyParams.Beta, 1, 1024, "factor of a decrease, in 1/1024"),
		span("timely_t_low", &p.TLow, 0, "below this round-trip time the rate rises"),
		span("timely_t_high", &p.THigh, time.Microsecond, "above this round-trip time the rate falls"),
		span("timely_min_rtt", &p.MinRTT, time.Microsecond, "round-trip time to which differences are compared"),
		rate("timely_delta", &p.Delta, 1, "step of the additive increase"),
		num("swift_ai", &p.AI, 1, maxAI, "additive increase a round trip, in 1/1024 packets"),
		num("swift_beta", &p.SwiftParams.Beta, 1, 1024, "factor of a decrease, in 1/1024"),
		num("swift_max_mdf", &p.MaxMDF, 1, 1023, "largest share that a decrease removes, in 1/1024"),
		span("swift_base_target", &p.BaseTarget, time.Microsecond, "target delay of a large window"),
		span("swift_fs_range", &p.FSRange, 0, "what the smallest window adds to the target delay"),
		num("swift_fs_min_cwnd", &p.FSMinCwnd, 1, maxCwnd, "window at which all of swift_fs_range is added, in 1/1024 packets"),
		num("swift_fs_max_cwnd", &p.FSMaxCwnd, 2, maxCwnd, "window from which on none of it is added, in 1/1024 packets"),
		num("swift_min_cwnd", &p.MinCwnd, 1, maxCwnd, "smallest window, in 1/1024 packets"),
		num("swift_max_cwnd", &p.MaxCwnd, 1, maxCwnd, "largest window, with which queue pairs begin, in 1/1024 packets"),
		num("swift_retx_reset_threshold", &p.RetxReset, 1, 100, "timeouts in succession that make the window the smallest"),
	}
}

// Field returns the parameter called name.
func (p *Params) Field(name string) (Field, error) {
	list := p.Fields()
	names := make([]string, len(list))
	for i := range list {
		if names[i] = list[i].Name; names[i] == name {
			return list[i], nil
		}
	}
	return Field{}, fmt.Errorf("no parameter %.40q; %suse one of %s", name, nearest.Meant(name, names), strings.Join(names, ", "))
}

// Validate reports the first parameter that is out of its bounds, or that contradicts another one.
func (p *Params) Validate() error {
	for what, list := range map[string][]string{p.Algorithm: Algorithms(), p.Profile: Profiles(), p.Scope: Scopes()} {
		if !slices.Contains(list, what) {
			return fmt.Errorf("%.40q is unknown; %suse one of %s", what, nearest.Meant(what, list), strings.Join(list, ", "))
		}
	}
	for _, f := range p.Fields() {
		if err := f.Set(f.Value()); err != nil {
			return err
		}
	}
	switch {
	case p.MinRate > p.MaxRate:
		return fmt.Errorf("rp_min_rate %s is above rp_max_rate %s", RateText(p.MinRate), RateText(p.MaxRate))
	case p.TLow > p.THigh:
		return fmt.Errorf("timely_t_low %v is above timely_t_high %v", p.TLow, p.THigh)
	case p.FSMinCwnd >= p.FSMaxCwnd:
		return fmt.Errorf("swift_fs_min_cwnd %d must be below swift_fs_max_cwnd %d", p.FSMinCwnd, p.FSMaxCwnd)
	case p.MinCwnd > p.MaxCwnd:
		return fmt.Errorf("swift_min_cwnd %d is above swift_max_cwnd %d", p.MinCwnd, p.MaxCwnd)
	case p.Profile == ProfilePaper && p.RTT <= p.Interval:
		return fmt.Errorf("rp_dce_tcp_rtt %v must be above np_min_time_between_cnps %v in profile paper: otherwise alpha decays between the CNPs of a flow all of whose packets are marked", p.RTT, p.Interval)
	}
	return nil
}

// Change changes parameters. Its errors are those of change and of Validate; then nothing has changed.
func (p *Params) Change(change func(p *Params) error) error {
	next := *p
	err := change(&next)
	if err == nil {
		err = next.Validate()
	}
	if err == nil {
		*p = next
	}
	return err
}

// String returns the algorithm, the profile and the parameters that differ from the profile; "off" for
// nil.
func (p *Params) String() string {
	if p == nil {
		return "off"
	}
	text := fmt.Sprintf("%s, profile %s, np_scope %s, rp_max_rate %s", p.Algorithm, p.Profile, p.Scope, RateText(p.MaxRate))
	usual, _ := Profile(p.Profile, p.MaxRate)
	defaults := usual.Fields()
	for i, f := range p.Fields() {
		if f.Value() != defaults[i].Value() {
			text += ", " + f.Name + " " + f.String()
		}
	}
	return text
}
