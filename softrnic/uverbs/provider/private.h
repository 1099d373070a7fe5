// The private interface between libibverbs and its providers, in our own words. It is in no package
// of a distribution, and it changes: the name of the function with which a provider registers has
// its number. These declarations are for the numbers 34 (from rdma-core 36 on), 57, 59, 64 and 65.
// A test compares them with the sources of rdma-core where such are at hand.
#ifndef RDMALAB_PRIVATE_H
#define RDMALAB_PRIVATE_H
#include <infiniband/verbs.h>

struct private_node { struct private_node *next, *prev; };

// private_match is an entry of the list of devices that a provider serves; an entry of kind 0 ends
// the list.
struct private_match {
	void *data;
	union { const char *modalias; uint64_t driver; } by;
	uint16_t vendor, device;
	uint8_t kind;
};
enum { MATCH_MODALIAS = 2 };

struct private_device;

// private_driver is what a provider registers.
struct private_driver {
	const char *name;
	uint32_t least, most; // versions of the rings
	const struct private_match *matches;
	const struct private_driver **others;
	bool (*match)(void *found);
	struct verbs_context *(*open)(struct ibv_device *device, int cmd_fd, void *data);
	struct verbs_context *(*import)(struct ibv_device *device, int cmd_fd);
	struct private_device *(*make)(void *found);
	void (*end)(struct private_device *device);
};

struct private_device {
	struct ibv_device device;
	const struct private_driver *driver;
	int uses;
	struct private_node node;
	void *found;
	uint64_t core;
};

// private_mr is a region. libibverbs does not let a child of fork have the memory of a region of kind
// KIND_MEMORY.
struct private_mr {
	struct ibv_mr mr;
	int kind, access;
};
enum { KIND_MEMORY = 0, KIND_DEVICE = 1, KIND_IMPORTED = 2, KIND_DMABUF = 3 };

// QP_HAS_EX is the bit in the word behind struct ibv_qp_ex of libibverbs that says that a queue pair
// has the functions of that struct. The struct has grown with versions; see find_layout.
enum { QP_HAS_EX = 2 };

// ROOM_QP_EX is at least the size of struct ibv_qp_ex of any version, with the word behind it.
enum { ROOM_QP_EX = 512 };

// layout is what differs between versions.
struct layout {
	int number;        // the name of the function with which a provider registers
	const char *has;   // a function that libibverbs exports from the first version of the layout on
	int since;         // for the table of functions, see OPERATIONS
	size_t context;    // the size of struct verbs_context, which grows at its beginning
};

// LAYOUTS, the newest first. Versions 34 and 35 of rdma-core register by the number 34, too, and have
// other layouts; only from 36 on there is ibv_query_qp_data_in_order.
#define LAYOUTS \
	{ 65, "ibv_create_comp_cntr", 65, 696 }, \
	{ 64, "ibv_alloc_buf", 64, 696 }, \
	{ 59, "ibv_query_port_speed", 62, 680 }, \
	{ 59, "ibv_alloc_dmah", 59, 672 }, \
	{ 57, "ibv_query_qp_data_in_order", 36, 648 }, \
	{ 34, "ibv_query_qp_data_in_order", 36, 648 }

// OPERATIONS has all functions that a provider may have, in the order of libibverbs' table, which is
// the alphabet. YES(name) is a function that this provider has, NO(since) one that it does not have;
// since is the version of rdma-core that has added the function, 36 stands for all before.
#define OPERATIONS(YES, NO) \
	YES(advise_mr) NO(64) /* alloc_buf */ YES(alloc_dm) NO(59) /* alloc_dmah */ YES(alloc_mw) \
	NO(36) /* alloc_null_mr */ YES(alloc_parent_domain) YES(alloc_pd) YES(alloc_td) NO(36) /* async_event */ \
	NO(36) /* attach_counters_point_flow */ YES(attach_mcast) YES(bind_mw) YES(close_xrcd) NO(36) /* cq_event */ \
	YES(create_ah) NO(65) /* create_comp_cntr */ NO(36) /* create_counters */ YES(create_cq) YES(create_cq_ex) \
	NO(36) /* create_flow */ NO(36) /* create_flow_action_esp */ YES(create_qp) YES(create_qp_ex) \
	NO(36) /* create_rwq_ind_table */ YES(create_srq) YES(create_srq_ex) NO(36) /* create_wq */ NO(59) /* dealloc_dmah */ \
	YES(dealloc_mw) YES(dealloc_pd) YES(dealloc_td) YES(dereg_mr) YES(destroy_ah) NO(65) /* destroy_comp_cntr */ \
	NO(36) /* destroy_counters */ YES(destroy_cq) NO(36) /* destroy_flow */ NO(36) /* destroy_flow_action */ \
	YES(destroy_qp) NO(36) /* destroy_rwq_ind_table */ YES(destroy_srq) NO(36) /* destroy_wq */ YES(detach_mcast) \
	NO(62) /* dm_export_dmabuf_fd */ NO(64) /* free_buf */ YES(free_context) YES(free_dm) YES(get_srq_num) YES(import_dm) \
	YES(import_mr) YES(import_pd) NO(65) /* inc_comp_cntr */ NO(65) /* inc_err_comp_cntr */ YES(modify_cq) \
	NO(36) /* modify_flow_action_esp */ YES(modify_qp) NO(36) /* modify_qp_rate_limit */ YES(modify_srq) \
	NO(36) /* modify_wq */ YES(open_qp) YES(open_xrcd) YES(poll_cq) YES(post_recv) YES(post_send) \
	NO(36) /* post_srq_ops */ YES(post_srq_recv) NO(65) /* qp_attach_comp_cntr */ NO(65) /* query_comp_cntr_caps */ \
	YES(query_device_ex) NO(36) /* query_ece */ YES(query_port) NO(62) /* query_port_speed */ YES(query_qp) \
	NO(36) /* query_qp_data_in_order */ YES(query_rt_values) YES(query_srq) NO(65) /* read_comp_cntr */ \
	NO(36) /* read_counters */ NO(65) /* read_err_comp_cntr */ YES(reg_dm_mr) YES(reg_dmabuf_mr) YES(reg_mr) \
	NO(59) /* reg_mr_ex */ YES(req_notify_cq) YES(rereg_mr) YES(resize_cq) NO(65) /* set_comp_cntr */ NO(36) /* set_ece */ \
	NO(65) /* set_err_comp_cntr */ YES(unimport_dm) YES(unimport_mr) YES(unimport_pd)

enum { MAX_OPERATIONS = 128 };
#endif
