// Package rackfile describes racks: it reads a rack file, checks it, and resolves it to names and
// addresses that are the same on every machine. It creates nothing; topo/rack and sim/simrack
// realise a Rack.
//
// A rack file is one YAML mapping. Unknown and repeated keys, wrong types and wrong units are
// errors with file, line and column. Sizes are written 64KiB, 1MiB, 2GiB (or 64K, 1M, 2G); durations as
// in Go (50us, 10s); rates 1Gbit (or 1gbit, 1G); probabilities 10% or 0.1. Anchors, aliases, tags and
// several documents in a file are refused. Schema returns the keys as a JSON schema.
//
//	name: default            # name of the rack: a-z, 0-9, "-"; at most 24 bytes. Default "default".
//	seed: 1                  # number that decides the MAC addresses and the random choices of faults. Default 1.
//	pathMtu: 4096            # path MTU of RDMA, 1024, 2048 or 4096; sets mtu to the smallest that holds it.
//	mtu: 4200                # MTU of every link, 1280 to 9216 bytes. Default 4200, which holds a path MTU of 4096.
//	connect: cm              # how queue pairs are connected: by datagrams of the RDMA connection manager (cm), or over TCP (tcp). Default cm.
//	cable: veth              # what carries RoCEv2 packets between hosts and switch: a pair of interfaces (veth), or shared memory (memory). Default veth.
//	daemons: separate        # processes of the hosts and the switch: one for each (separate), or one for all, which is faster on few processors (shared). Default separate.
//	priority: normal         # scheduling priority of the daemons of hosts and switch: that of other processes (normal), or a higher one (realtime). Default normal.
//	group: rdma              # a group of this machine, by name or number: its users may run programs on the NICs of the hosts. Default none: only root may.
//	slow: 1000               # slow motion: rates are divided, delays and timers multiplied by this factor, 2 to 100000; not with connect: tcp or onerma. Default none.
//	cost: connectx5          # with slow: the built-in cost model (rdmalab sim cost) whose NICs, links and switch the rack has. Default connectx5.
//	onerma:                  # every host also has a NIC without connections, 1RMA; {} for the defaults. Default none.
//	  rtt: 4ms               # round-trip time on which its congestion control is based, 1us to 1s. Default 4ms.
//	  dispatch: 8ms          # how long an operation may wait for its receiver's window. Default 8ms.
//	  timeout: 20ms          # how long the next message of an operation may take, at least dispatch and two rtt. Default 20ms.
//	  window: 512KiB         # how many bytes a NIC may request that have not arrived, 4KiB to 64MiB. Default 512KiB.
//	  rotate: 10s            # how often hosts replace the keys of the memory that they lend, whose borrowers they tell before. Default: never.
//	congestion:              # congestion control of the NICs: their packets may be marked (ECN), and marks slow their senders. Default none.
//	  rp_max_rate: 40Gbit    # line rate, at which queue pairs begin, 1Mbit to 4Tbit. Required.
//	  algorithm: dcqcn       # dcqcn, timely, swift, fixed (each queue pair sends at rp_max_rate) or none (marks are answered, nothing is slowed). Default dcqcn.
//	  profile: paper         # defaults of all keys below: paper (DCQCN, SIGCOMM 2015) or mlx (ConnectX). Default paper.
//	  rp_min_rate: 40Mbit    # lowest rate of a queue pair. Default 40Mbit; mlx 1Mbit.
//	  rp_ai_rate: 40Mbit     # step of additive increase. Default 40Mbit; mlx 5Mbit.
//	  rp_hai_rate: 200Mbit   # step of hyper increase. Default 200Mbit; mlx 50Mbit.
//	  rp_time_reset: 55us    # period of the increase timer, 1us to 10s. Default 55us; mlx 300us.
//	  rp_byte_reset: 10000000 # bytes sent between two increases by the byte counter; 0: no byte counter. Default 10000000; mlx 2MiB.
//	  rp_threshold: 5        # increases in fast recovery, 1 to 31. Default 5; mlx 1.
//	  rp_min_dec_fac: 50     # percent of the rate that a cut leaves at least. Default 50.
//	  rp_rate_reduce_monitor_period: 4us # the rate is cut at most once in it; 0s: at every CNP. Default 0s; mlx 4us.
//	  rp_clamp_tgt_rate: 1   # 1: each cut lowers the target rate. Default 1; mlx 0.
//	  rp_clamp_tgt_rate_ati: 1 # 1: a cut lowers the target rate if the timer has increased the rate since the last cut. Default 0; mlx 1.
//	  rp_rate_to_set_on_first_cnp: 10Gbit # rate at the first CNP, before the cut; 0: keep it. Default 0.
//	  rp_dce_tcp_g: 1020     # weight of the old alpha in 1/1024: 1020 is g = 1/256. Default 1020; mlx 1019.
//	  rp_dce_tcp_rtt: 55us   # period in which alpha is updated; with profile paper above np_min_time_between_cnps. Default 55us; mlx 1us.
//	  rp_initial_alpha_value: 1024 # first alpha in 1/1024. Default 1024; mlx 1023.
//	  rp_gd: 11              # a cut removes the share alpha*2^(10-rp_gd), 10 to 15. Default 11.
//	  np_min_time_between_cnps: 50us # shortest time between two CNPs in one np_scope. Default 50us; mlx 4us.
//	  np_scope: qp           # what has CNPs of its own: each queue pair (qp), each sender's address (ip), or the NIC (port). Default qp.
//	  np_cnp_dscp: 48        # DSCP of CNPs, 0 to 63. Default 48.
//	  timely_alpha: 896      # weight of a new difference of round-trip times in 1/1024. Default 896 (0.875).
//	  timely_beta: 819       # factor of a decrease in 1/1024. Default 819 (0.8).
//	  timely_t_low: 50us     # below this round-trip time the rate rises. Default 50us.
//	  timely_t_high: 500us   # above this round-trip time the rate falls, 1us to 10s. Default 500us.
//	  timely_min_rtt: 20us   # round-trip time to which differences are compared, 1us to 10s. Default 20us.
//	  timely_delta: 10Mbit   # step of the additive increase. Default 10Mbit.
//	  swift_ai: 1024         # additive increase a round trip in 1/1024 packets, 1 to 65536. Default 1024.
//	  swift_beta: 819        # factor of a decrease in 1/1024. Default 819 (0.8).
//	  swift_max_mdf: 512     # largest share that a decrease removes, in 1/1024. Default 512.
//	  swift_base_target: 20us # target delay of a large window, 1us to 10s. Default 20us.
//	  swift_fs_range: 100us  # what the smallest window adds to the target delay. Default 100us.
//	  swift_fs_min_cwnd: 102 # window at which all of swift_fs_range is added, in 1/1024 packets. Default 102 (0.1).
//	  swift_fs_max_cwnd: 102400 # window from which on none of it is added, in 1/1024 packets. Default 102400 (100).
//	  swift_min_cwnd: 10     # smallest window in 1/1024 packets. Default 10 (0.01).
//	  swift_max_cwnd: 131072 # largest window, with which queue pairs begin, in 1/1024 packets. Default 131072 (128).
//	  swift_retx_reset_threshold: 5 # timeouts in succession that make the window the smallest. Default 5.
//	subnet: 10.77.0.0/24     # IPv4 addresses of the hosts and the switches: the first is that of the switch or leaf0, the last ones those of other switches. Default 10.77.0.0/24.
//	subnet6: fd00:77::/64    # IPv6 addresses of the switch and the hosts. Default fd00:77::/64.
//	switch:
//	  program: forward       # switch program: forward or swordbox. Default forward.
//	  queue: 1024            # capacity of each egress queue in packets, 1 to 65536. Default 1024.
//	  spin: 50us             # how long the switch polls before it blocks, 0s to 1s. Default 50us.
//	  cpu: 0                 # processor on which the switch runs: a number, auto (one that the hosts leave free) or none (any). Default auto.
//	  rules:                 # Rules of program swordbox: the first that matches a request applies. Default none.
//	    - id: locks          # default: assigned
//	      server: ms0        # a host's name, or an address. Required.
//	      action: atomics    # track, move, atomics, steer, count, measure, trace, buffer or lookup. Required.
//	      mode: hardened     # hardened or published. Default hardened.
//	      range: 0x1000-0x2000 # virtual addresses, the last one excluded. Default all.
//	      rkey: 0x1234       # only requests with this R_Key. Default any.
//	      shards: 2          # shared connections to the server, 1 to 64. Default 1.
//	      service: memory    # what the switch connects to: a service's name, a port, or none. Default memory.
//	      depth: 16          # READs and atomics in flight on a shared connection, 1 to 128. Default 16.
//	      mtu: 1024          # path MTU of shared connections. Default the largest possible.
//	      slow: marked       # with actions move and atomics: clients told of congestion: all, marked, share or heaviest; or the switch slows itself: connection, flow or queue. Default all.
//	      steer: write       # with action steer: read, write or both. Default both.
//	      keys: 1,7          # with action steer: only these keys, at most 256; or hot:N, the N keys that clients request most, N at most 256. Default all.
//	      registers: 1024    # with action steer, mode published: registers for newest nodes, 1 to 16384. Keys with the same remainder share one. Default 256.
//	      top: 64            # with action count: how many addresses are counted, 1 to 1024. Default 64.
//	      unit: line         # with action count: word (8 bytes), line (64) or page (4096). Default word.
//	      store: ms1         # with action count: memory servers, at most 8, whose memory holds the counters. Default: the memory of the switch.
//	      at: 0x1000         # with store: offset of the counters in that memory, a multiple of 8. Default 0.
//	      slots: 4096        # with store: number of counters, 1 to 1073741824. Default 1024.
//	      rows: 4            # with store: rows of a count-min sketch of slots counters each, 1 to 8. Default 1, no sketch; with action measure 5.
//	      per: address       # with store: a counter for each flow (by a hash) or address (modulo slots). Default flow.
//	      add: bytes         # with store: a request adds 1 (requests) or its length (bytes). Default requests.
//	      by: flow           # with action measure: what has a counter: flow, pair, source, destination, service or protocol. Default flow.
//	      combine: 100us     # with store: amounts for one counter are added up in the switch for this time, at most 10ms. Default 0.
//	      sample: 16         # with action measure or trace: one packet of this many is counted or recorded, 1 to 1048576. Default 1.
//	      choose: chance     # with sample: which packets are taken: nth or chance. Default nth.
//	      seed: 7            # with choose: chance: seed of the random numbers. Default 0.
//	      flows: 256         # with action measure: how many flows the switch remembers, 1 to 4096. Default 256.
//	      cap: 2Gbit         # with an action that uses servers' memory: bits a second of requests on each connection to them, 1Mbit to 1Tbit. Default no bound.
//	      dscp: 46           # with such an action: DSCP of these requests, 0 to 63. Default 0.
//	      records: 65536     # with action trace: records of 128 bytes in the ring on all servers together, 1 to 1048576. Default 4096.
//	      batch: 16          # with action trace: records that one WRITE has at most, 1 to 32. Default 8.
//	      kvport: 11211      # with action cache: UDP port of the key-value server whose GETs the switch answers. Default 11211.
//	      items: 65536       # with action cache: values that the memory of all servers (store) can have, 1 to 1073741824. Default 4096.
//	      size: 512          # with action cache: bytes of the cell of a value, 64 to 4096, a multiple of 8. Default 1024.
//	      hot: 2             # with action cache: how many GETs of a key make the switch keep its value, 1 to 16384. Default 8.
//	      age: 100ms         # with action cache: how long a value answers GETs before the server is asked again, 1us to 1h. Default 1s.
//	      ring: "ms0,ms1"    # with action buffer: memory servers, at most 8, whose memory holds the ring. Required with it.
//	      rate: 1Gbit        # with action buffer: rate of the port to the server, in bits a second. Required with it.
//	      high: 64           # with action buffer: waiting frames at which the next ones go to the ring, 1 to 16384. Default 64.
//	      low: 8             # with action buffer: frames come back when fewer wait in the switch. Default 8.
//	      entries: 4096      # with action buffer: entries of the ring, 1 to 1073741824. Default 4096.
//	      entry: 2048        # with action buffer: bytes of an entry, 512, 1024, 1552, 2048 or 4096. Default 2048.
//	      offset: 0x1000     # with action buffer: offset of the ring in that memory, a multiple of 8. Default 0.
//	      table: "ms0,ms1"   # with action lookup: memory servers, at most 8, whose memory holds the table. Required with it.
//	      match: destination # with action lookup: an entry matches a flow, a destination's address (destination) or what its mask says (ternary). Default flow.
//	      masks: "to+proto+dport,to/24,any" # with match: ternary: what entries match, 1 to 8 masks, the one with the highest priority first. Required with it.
//	      vip: web           # with action lookup: a virtual address, that of a host: connections to it from the server go to hosts of pool. Default none.
//	      vport: 80          # with vip: the port of these connections, 1 to 65535. Required with it.
//	      pool: "web0,web1"  # with vip: hosts that get new connections, at most 8. Required with it.
//	      drain: web0        # with vip: hosts that keep their connections and get no new ones. Default none.
//	      capacity: 65536    # with action lookup: slots of 64 bytes on each server, 1 to 1073741824. Default 65536.
//	      hash: crc32        # with action lookup: the function that makes the place of an entry, and its key: mix, crc32, or one of a Go module of your own (lookuptable.RegisterHash). Default mix.
//	      cells: 512         # with action lookup: cells on each server for packets, 1 to 65536. Default 512.
//	      cell: 2048         # with action lookup: bytes of a cell, 512, 1024, 2048 or 4096. Default 2048.
//	      cache: 1024        # with action lookup: entries that the switch keeps, 0 to 65536. Default 1024.
//	      miss: drop         # with action lookup: packets without an entry: forward or drop. Default forward.
//	      packets: recirculate # with action lookup: where packets wait for their entry: deposit (a server's cells) or recirculate (the switch). Default deposit.
//	      base: 0x1000       # with action lookup: offset of the table in that memory, a multiple of 8. Default 0.
//	      misses: wait       # what answers a CMP_SWAP that the switch knows to fail: server; switch; or wait[:TIME]: the switch, if the word does not get the compared value within TIME (1ms if not given). Default server.
//	  ports:                 # the egress queues of all ports. Default none: one queue each (key queue), as fast as the machine.
//	    rate: 1Gbit          # rate of each port, 8kbit to 1Tbit. Required.
//	    buffer: 12MiB        # packet buffer of the switch, 64KiB to 1GiB. Default 12MiB, or more if lossless queues need it.
//	    own: 1MiB            # the part of it for packets that the switch program makes or has held. Default an eighth.
//	    reaction: 5ms        # with lossless queues: how late hosts and switch may run, which headroom: auto allows for, 0s to 100ms. Default 5ms.
//	  dscp:                  # with ports: the priority, 0 to 7, of each DSCP, 0 to 63. Default 0.
//	    3: 3                 # RoCEv2 packets with DSCP 3 have priority 3; all other protocols have priority 0
//	  queues:                # with ports: the queue of each priority. Default a lossy one of weight 1.
//	    3:                   # a priority, 0 to 7
//	      strict: true       # the priority leaves before those that are not strict, and before lower strict ones. Default false.
//	      weight: 50         # its share beside other priorities, 1 to 100. Default 1.
//	      ecn:               # marks packets whose ECN field is ECT, as with tos: 2 (or 14, with DSCP 3). Default none.
//	        kmin: 5000       # no marks up to this length of the queue, in bytes
//	        kmax: 200000     # above this length each packet is marked
//	        pmax: 1%         # share of packets that are marked at kmax; it grows linearly from kmin
//	        at: dequeue      # the length when a packet leaves (dequeue) or comes (enqueue). Default dequeue.
//	      lossless: true     # pause frames (PFC) instead of loss; not with cable: memory or daemons: shared. Default false.
//	      xoff: 40KiB        # with lossless: bytes from one port at which its host is paused, or dynamic: alpha times the free memory. Default dynamic.
//	      limit: 1MiB        # without lossless: the longest queue of a port in bytes, or dynamic. Default dynamic.
//	      alpha: 1/8         # the factor of dynamic. Default 1/8; for priorities that are not listed 1.
//	      xon: 8KiB          # with lossless: the host goes on so far below xoff. Default two packets.
//	      headroom: auto     # with lossless: memory of each port for what arrives after a pause; auto: by rate, reaction and mtu. Default auto.
//	      reserve: 4KiB      # with lossless: memory that each port has before it uses shared memory. Default 4KiB.
//	  watchdog:              # with ports: finds priorities that a host pauses for too long. Default none.
//	    detect: 200ms        # how long a pause must last without a packet that leaves, 1ms to 1m. Default 200ms.
//	    restore: 200ms       # how long after the last pause frame the priority works again, 1ms to 1m. Default 200ms.
//	    action: drop         # meanwhile: drop its packets, or forward them in spite of the pause. Default drop.
//	fabric:                  # several switches in place of one: leaves with hosts, and spines with a trunk to each leaf. Default none: one switch.
//	  leaves: 4              # leaf switches, leaf0 and so on, 1 to 16. Required.
//	  spines: 2              # spine switches, spine0 and so on, 0 to 8; without spines each leaf has a trunk to each other leaf. Required.
//	  machine: {spine0: m2}  # with machines: on which machine a switch is. Default the first leaf on the first machine and so on, and the spines likewise.
//	  strict: false          # with machines or carrier: perf and run fail if the network loses something of a trunk. Default false: RC sends it again.
//	  carrier: tcp           # what carries the trunks between machines: udp, or tcp where the network lets no UDP pass; losses there become delays. Default udp. On one machine all trunks, over its loopback interface; default pairs of interfaces.
//	machines:                # the rack is on several machines, 2 to 16, each with at least one switch. Default none: all is on the machine of the command. Without fabric each has a leaf.
//	  - name: m1             # name of the machine in commands, at most 15 bytes. Required.
//	    ssh: ssh://root@10.0.0.1 # where rdmalab reaches it by the program ssh: user, host and port; a user who is not root needs sudo. Required.
//	    address: 10.0.0.1    # its IPv4 or IPv6 address for trunks, which the other machines reach. Default the address in ssh.
//	    port: 24791          # first of the UDP or TCP ports of its trunks; all trunks of a rack have consecutive ones, at most 128. Default 24791.
//	hosts:                   # 1 to 256 hosts. Required.
//	  - name: cn[0-3]        # name of a host, at most 15 bytes; or of several hosts, such as cn[00-15] or leaf[1-2]-cn[0-3]. Required.
//	    role: compute        # compute, memory or metadata. Required.
//	    memory: 64MiB        # size of the region that other hosts access. Default 64MiB on memory hosts, 16MiB on metadata hosts, else none.
//	    spin: 50us           # how long the host's NIC polls before it blocks, 0s to 1s. Default 50us.
//	    cpu: 1               # processor on which the host's daemon runs: a number, auto (any that the switch leaves free) or none (any). Default auto.
//	    machine: m2          # with machines: the machine that runs it, at whose leaves it is. Default that of its leaf.
//	    leaf: leaf1          # with fabric: the leaf of its first NIC; its other NICs are at the leaves behind it. Default leaf0, leaf1 and so on, in the order of the hosts.
//	    nics:                # its NICs: how many, 1 to 8; or a list, with the keys of each. Default 1.
//	      - name: rxe0       # name of the NIC for programs over libibverbs, which must begin with rxe. Default rxe0, rxe1 and so on.
//	        mtu: 9000        # MTU of its link, 1280 to 9216 bytes. Default that of the rack.
//	        numa: 1          # NUMA node that programs read for it under /sys, 0 to 1023. Default none.
//	    gso: off             # on: its NIC sends packets of equal length together in one long frame; off: each in a separate frame. Default on.
//	    rate: 1Gbit          # rate of its NIC, 8kbit to 1Tbit. Default that of the switch's ports if a queue is lossless, else as fast as the machine.
//	    pkeys: [0xffff, 0x8001] # P_Keys (partitions) of its NIC, 1 to 128: 1 to 0x7fff for a limited member, plus 0x8000 for a full one. Default [0xffff].
//	    tos: 104             # TOS byte or traffic class (DSCP and ECN, 0 to 255) of its NIC's packets if the connection or address handle sets none. Default 0.
//	    window: 1024         # packets that a queue pair of its NIC has in flight, 1 to 16384. Default 128.
//	    acks: 1              # requests that an ACK of its NIC answers at most, 1 to 64. 1: each request has an ACK of its own; more: an ACK waits up to 3 us for further requests. Default: those that arrive together.
//	    recovery: rack       # how its queue pairs recover from losses, if the peer's host has the key, too: go-back-n, irn or rack. Default go-back-n.
//	    congestion: {rp_max_rate: 40Gbit, profile: mlx} # congestion control of this host's NIC, instead of that of the rack. Default that of the rack.
//	    lenient: true        # true: unmodified programs may call ibv_modify_qp with attributes missing, or too many, as no kernel allows. Default false.
//	    distinctKeys: true   # true: L_Key and R_Key of a region are different numbers, so that a program which takes one for the other fails. Default false, as on hardware.
//	    quota:               # bounds for programs outside the daemon that use its NIC. Default: the defaults below.
//	      programs: 64       # programs that use the NIC at the same time, 1 to 1024. Default 64.
//	      pds: 256           # protection domains of a program, 1 to 1024. Default 256.
//	      mrs: 4096          # memory regions of a program, 1 to 65536. Default 16384.
//	      mws: 256           # memory windows of a program, 1 to 65536. Default 256.
//	      ahs: 4096          # address handles of a program, 1 to 65536. Default 4096.
//	      cqs: 1024          # completion queues of a program, 1 to 16384; of a Go program at most 1024. Default 4096.
//	      srqs: 256          # shared receive queues of a program, 1 to 4096; of a Go program at most 512. Default 256.
//	      qps: 1024          # queue pairs of a program, 1 to 16384; at most 4095, of a Go program 2048. Default 2048.
//	      attachments: 512   # attachments of a program's queue pairs to multicast groups, 1 to 16384. Default 512.
//	      ids: 4096          # a program's identifiers of librdmacm, including those of peers' requests, 1 to 16384. Default 4096.
//	      joins: 512         # multicast groups that a program has joined by librdmacm, 1 to 16384. Default 512.
//	      events: 16384      # events of librdmacm that a program has not read, 1 to 65536. Default 16384.
//	      channels: 1024     # completion channels of a program, and its event channels of librdmacm, 1 to 65536; each is a file of the daemon. Default 65536.
//	      memory: 1GiB       # memory that a program has mapped. Default 16GiB.
//	      queueMemory: 64MiB # memory that the NIC uses for the queues of a program if they are full. Default 4GiB.
//	      deviceMemory: 64KiB # device memory of a program. Default: all that the daemon does not use.
//	      shared: 1GiB       # memory in the shared regions of one user. Default 16GiB.
//	      reserve: 12        # percent of each table of the NIC that programs together leave to the daemon, 1 to 90. Default 12.
//	devices:                 # network devices of the machine as plain ports of a switch, at most 16. Default none.
//	  - port: eth1           # the device, as `ip link` names it where `rdmalab up` runs. Required.
//	    name: out            # name of its port in commands, at most 15 bytes. Default that of the device.
//	    leaf: leaf0          # with fabric: the leaf that has the port. Default leaf0.
//	    uplink: true         # true: take it also if the machine's default route goes out of it. Default false.
//	faults:                  # active from the start. Default none.
//	  - link: cn0            # name of the host whose link has the fault. Required.
//	    kind: loss           # loss duplicate delay reorder corrupt rate blackhole ecn pause tear. Required.
//	    dir: up              # direction of the link: up (from the host), down or both. Default both.
//	    probability: 10%     # probability that the fault hits a selected frame. Default 100%.
//	    delay: 1ms           # with kind delay or reorder: how long a frame is held back; with kind tear: the longest pause in a copy
//	    jitter: 100us        # with kind delay: the largest random time that is added to delay or subtracted from it
//	    bitsPerSecond: 1Gbit # with kind rate: the rate of the link
//	    priority: 3          # with kind pause: the priority that is paused, 0 to 7. Default 0.
//	    count: 2             # the fault ends after this number of hits
//	    for: 10s             # the fault ends after this time
//	    seed: 7              # number that decides the fault's random choices. Default: the rack's seed.
//	    id: name             # name of the fault. Default: assigned.
//	    match:               # only RoCEv2 packets with these properties, or 1RMA messages of a class. Default every frame.
//	      opcodes: [RC_WRITE_LAST] # the packet has one of these opcodes
//	      class: ack         # request response ack nak rnr read_response atomic cnp roce, or onerma and onerma_request, _pull, _data, _done, _refusal, _read, _write, _rekey
//	      qpn: 0x11          # destination queue pair
//	      psn: 100           # packet sequence number
//	      psnOffset: 3       # packet sequence number, counted from the first one seen for the queue pair
//	      transmission: 1    # the n-th time that the packet crosses the link
//	      samePacket: true   # later hits must be the same packet as the first
//
// The first address of each subnet is the switch's, the hosts follow in the order of the file. A
// MAC address is 02:72, two bytes made from the seed, and a number: 1 for the switch, 2 and so on
// for the hosts. Hosts have all of these addresses from the rack's description, so they send no ARP
// requests for them. The program swordbox answers such requests for the switch's addresses.
//
// The keys spin and gso to quota of a host are for all of its NICs, and may also be written for one in
// the list nics. NIC n of each host, counted from 0, has the n-th subnets behind subnet and subnet6,
// and in them the number of its host: cn0 with 10.77.0.5 has 10.77.1.5 as NIC 1, whose name is cn0/rxe1.
//
// The files: rack.go has the result (Rack, Switch, Host). parse.go has the top level of the file
// and the keys of switch and hosts; rules.go, faults.go, quota.go, pkeys.go, congestion.go and
// cost.go read a section each. node.go is the decoder with its errors (errors.go), and names.go reads scalars.
// resolve.go checks that the sections fit each other, and gives out addresses. nics.go has hosts with
// several NICs, fabric.go several switches, machines.go several machines. guest.go
// adds a host to a rack that is up. paths.go names the files of a running rack.
package rackfile
