//! The address space: `Objects/Line/<machine>/<node>`, answered from the board.
//!
//! The server library's own node managers are too kind: they answer Good when a node that does not exist is subscribed to or browsed.
//! This one refuses with `BadNodeIdUnknown`, as a PLC does, and refuses every write.

use std::sync::Arc;

use async_trait::async_trait;
use opcua::nodes::DefaultTypeTree;
use opcua::server::address_space::{AddressSpace, ObjectBuilder, VariableBuilder};
use opcua::server::diagnostics::NamespaceMetadata;
use opcua::server::node_manager::memory::{InMemoryNodeManager, InMemoryNodeManagerBuilder, InMemoryNodeManagerImpl};
use opcua::server::node_manager::{
    BrowseNode, BrowsePathItem, DynNodeManager, ExternalReferenceRequest, NodeManager, NodeManagerBuilder,
    ParsedReadValueId, ReadNode, RequestContext, ServerContext, WriteNode,
};
use opcua::server::{CreateMonitoredItem, SubscriptionCache};
use opcua::sync::RwLock;
use opcua::types::{
    AttributeId, DataValue, Identifier, NodeId, NumericRange, ObjectId, ObjectTypeId, QualifiedName, StatusCode,
    TimestampsToReturn, VariableTypeId,
};

use super::board::{Board, NAMESPACE, Node};
use super::counter::Shown;

const NAME: &str = "simulator";

/// The nodes as one server offers them.
pub struct Nodes {
    tree: Arc<InMemoryNodeManager<Tree>>,
    board: Arc<Board>,
    index: u16,
    ids: Vec<NodeId>,
}

impl Nodes {
    /// A builder for a server's set-up.
    pub fn builder(board: Arc<Board>) -> impl NodeManagerBuilder + 'static {
        Builder(board)
    }

    /// Tells the subscribers of these nodes, by their positions, what they show; also makes nodes go away and come back.
    pub fn tell(&self, subscriptions: &SubscriptionCache, positions: impl Iterator<Item = usize> + Clone) {
        self.come_and_go(positions.clone());
        let readings = self.board.readings();
        let mut subscribers = subscriptions.data_notifier();
        for (id, reading) in positions.filter_map(|at| self.ids.get(at).zip(readings.get(at))) {
            if let Some(mut subscriber) = subscribers.notify_for(id, AttributeId::Value) {
                subscriber.data_value(reading.data_value());
            }
        }
    }

    fn come_and_go(&self, positions: impl Iterator<Item = usize>) {
        let moved: Vec<(&NodeId, &Node, bool)> = {
            let readings = self.board.readings();
            let space = self.tree.address_space().read();
            let nodes = positions.filter_map(|at| {
                Some((self.ids.get(at)?, self.board.nodes().get(at)?, readings.get(at)?.shown != Shown::Gone))
            });
            nodes.filter(|(id, _, there)| space.node_exists(id) != *there).collect()
        };
        if moved.is_empty() {
            return;
        }
        let mut space = self.tree.address_space().write();
        for (id, node, there) in moved {
            if there {
                insert(&mut space, self.index, node);
            } else {
                space.delete(id, true);
            }
        }
    }

    fn is_unknown(&self, id: &NodeId) -> bool {
        id.namespace == self.index && !self.tree.address_space().read().node_exists(id)
    }
}

struct Builder(Arc<Board>);

impl NodeManagerBuilder for Builder {
    fn build(self: Box<Self>, context: ServerContext) -> Arc<DynNodeManager> {
        let board = self.0;
        let index = context.type_tree.write().namespaces_mut().add_namespace(NAMESPACE);
        let tree = {
            let board = board.clone();
            InMemoryNodeManagerBuilder::new(move |_: ServerContext, space: &mut AddressSpace| {
                plant(space, index, &board);
                Tree { board, index }
            })
        };
        let built: Arc<DynNodeManager> = Box::new(tree).build(context);
        // The library hands its own type back without its name.
        match built.clone().into_any_arc().downcast::<InMemoryNodeManager<Tree>>() {
            Ok(tree) => {
                let ids = board.nodes().iter().map(|node| id(index, node.identifier())).collect();
                Arc::new(Nodes { tree, board, index, ids })
            }
            Err(_) => built,
        }
    }
}

fn id(index: u16, identifier: String) -> NodeId {
    NodeId::new(index, identifier)
}

fn plant(space: &mut AddressSpace, index: u16, board: &Board) {
    space.add_namespace(NAMESPACE, index);
    let line = id(index, "Line".to_owned());
    space.add_folder(&line, QualifiedName::new(index, "Line"), "Line", &ObjectId::ObjectsFolder.into());
    let readings = board.readings();
    for (node, reading) in board.nodes().iter().zip(readings.iter()) {
        let machine = id(index, node.machine.clone());
        if !space.node_exists(&machine) {
            ObjectBuilder::new(&machine, QualifiedName::new(index, node.machine.as_str()), node.machine.as_str())
                .has_type_definition(ObjectTypeId::BaseObjectType)
                .organized_by(line.clone())
                .insert(space);
        }
        if reading.shown != Shown::Gone {
            insert(space, index, node);
        }
    }
}

fn insert(space: &mut AddressSpace, index: u16, node: &Node) {
    VariableBuilder::new(&id(index, node.identifier()), QualifiedName::new(index, node.name), node.name)
        .description(node.description.as_str())
        .data_type(node.data_type)
        .has_type_definition(VariableTypeId::BaseDataVariableType)
        .component_of(id(index, node.machine.clone()))
        .insert(space);
}

/// The part that the library's node manager asks: values come from the board.
struct Tree {
    board: Arc<Board>,
    index: u16,
}

impl Tree {
    fn read(
        &self,
        context: &RequestContext,
        space: &AddressSpace,
        what: &ParsedReadValueId,
        timestamps: TimestampsToReturn,
    ) -> DataValue {
        let refused = |status| DataValue { status: Some(status), ..DataValue::null() };
        if let Err(status) = space.validate_node_read(context, what) {
            return refused(status);
        }
        let Identifier::String(identifier) = &what.node_id.identifier else {
            return refused(StatusCode::BadAttributeIdInvalid);
        };
        let Some(at) = self.board.position(identifier.as_ref()) else {
            return refused(StatusCode::BadAttributeIdInvalid);
        };
        if what.index_range != NumericRange::None {
            return refused(StatusCode::BadIndexRangeNoData);
        }
        let reading = self.board.readings().get(at).cloned();
        let mut value = reading.map_or_else(|| refused(StatusCode::BadNodeIdUnknown), |reading| reading.data_value());
        if !matches!(timestamps, TimestampsToReturn::Source | TimestampsToReturn::Both) {
            value.source_timestamp = None;
        }
        if !matches!(timestamps, TimestampsToReturn::Server | TimestampsToReturn::Both) {
            value.server_timestamp = None;
        }
        value
    }
}

#[async_trait]
impl InMemoryNodeManagerImpl for Tree {
    async fn init(&self, _space: &mut AddressSpace, _context: ServerContext) {}

    fn name(&self) -> &str {
        NAME
    }

    fn namespaces(&self) -> Vec<NamespaceMetadata> {
        vec![NamespaceMetadata {
            namespace_uri: NAMESPACE.to_owned(),
            namespace_index: self.index,
            ..NamespaceMetadata::default()
        }]
    }

    async fn read_values(
        &self,
        context: &RequestContext,
        space: &RwLock<AddressSpace>,
        nodes: &[&ParsedReadValueId],
        _max_age: f64,
        timestamps: TimestampsToReturn,
    ) -> Vec<DataValue> {
        let space = space.read();
        nodes.iter().map(|what| self.read(context, &space, what, timestamps)).collect()
    }

    async fn create_value_monitored_items(
        &self,
        context: &RequestContext,
        space: &RwLock<AddressSpace>,
        items: &mut [&mut &mut CreateMonitoredItem],
    ) {
        let space = space.read();
        for item in items {
            let what = item.item_to_monitor();
            let value = self.read(context, &space, what, TimestampsToReturn::Both);
            let exists = space.node_exists(&what.node_id);
            match value.status.unwrap_or(StatusCode::Good) {
                StatusCode::BadNodeIdUnknown => item.set_status(StatusCode::BadNodeIdUnknown),
                status if !exists || status == StatusCode::BadAttributeIdInvalid => item.set_status(status),
                _ => {
                    item.set_initial_value(value);
                    item.set_status(StatusCode::Good);
                }
            }
        }
    }

    async fn write(
        &self,
        _context: &RequestContext,
        space: &RwLock<AddressSpace>,
        writes: &mut [&mut WriteNode],
    ) -> Result<(), StatusCode> {
        let space = space.read();
        for write in writes {
            let exists = space.node_exists(&write.value().node_id);
            write.set_status(if exists { StatusCode::BadNotWritable } else { StatusCode::BadNodeIdUnknown });
        }
        Ok(())
    }
}

#[async_trait]
impl NodeManager for Nodes {
    fn owns_node(&self, id: &NodeId) -> bool {
        self.tree.owns_node(id)
    }

    fn name(&self) -> &str {
        NAME
    }

    fn namespaces_for_user(&self, context: &RequestContext) -> Vec<NamespaceMetadata> {
        self.tree.namespaces_for_user(context)
    }

    async fn init(&self, type_tree: &mut DefaultTypeTree, context: ServerContext) {
        self.tree.init(type_tree, context).await;
    }

    async fn resolve_external_references(&self, context: &RequestContext, items: &mut [&mut ExternalReferenceRequest]) {
        self.tree.resolve_external_references(context, items).await;
    }

    async fn read(
        &self,
        context: &RequestContext,
        max_age: f64,
        timestamps: TimestampsToReturn,
        nodes: &mut [&mut ReadNode],
    ) -> Result<(), StatusCode> {
        self.tree.read(context, max_age, timestamps, nodes).await
    }

    async fn write(&self, context: &RequestContext, nodes: &mut [&mut WriteNode]) -> Result<(), StatusCode> {
        self.tree.write(context, nodes).await
    }

    async fn browse(&self, context: &RequestContext, nodes: &mut [BrowseNode]) -> Result<(), StatusCode> {
        self.tree.browse(context, nodes).await?;
        for node in nodes {
            if self.is_unknown(node.node_id()) {
                node.set_status(StatusCode::BadNodeIdUnknown);
            }
        }
        Ok(())
    }

    async fn translate_browse_paths_to_node_ids(
        &self,
        context: &RequestContext,
        nodes: &mut [&mut BrowsePathItem],
    ) -> Result<(), StatusCode> {
        self.tree.translate_browse_paths_to_node_ids(context, nodes).await
    }

    async fn create_monitored_items(
        &self,
        context: &RequestContext,
        items: &mut [&mut CreateMonitoredItem],
    ) -> Result<(), StatusCode> {
        self.tree.create_monitored_items(context, items).await
    }
}
